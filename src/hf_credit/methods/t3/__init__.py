"""T3: episodes are cut when the belief of an agent is trapped (paper T3, Reducing Belief Deviation).

A rule defines the progress of each step, `first_cut` finds the step after too many with too little progress, and
`Truncated` cuts the episode there. `truncation` adds this to any method, as its `wrap`; the paper has PPO, GRPO and
GSPO.
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
