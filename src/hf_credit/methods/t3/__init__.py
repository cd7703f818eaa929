"""T3: episodes that are cut where the belief of an agent is trapped (paper T3, Reducing Belief Deviation).

A rule says what progress each step made, `first_cut` where too many in a row made too little, and `Truncated` what
becomes of the episode there. `truncation` puts that under any method, as its `wrap`; the paper has PPO, GRPO and GSPO.
"""

from hf_credit.methods.t3.rules import RULES, Rule, Step, first_cut, hypotheses_left, make_rule
from hf_credit.methods.t3.truncated import CUTS, Truncated, TruncatedState, Truncation, truncation

__all__ = [
    "CUTS",
    "RULES",
    "Rule",
    "Step",
    "Truncated",
    "TruncatedState",
    "Truncation",
    "first_cut",
    "hypotheses_left",
    "make_rule",
    "truncation",
]
