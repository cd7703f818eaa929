"""T3: truncation of episodes in which the agent's belief is trapped (paper T3, Reducing Belief Deviation).

A rule measures the progress of each step, `first_cut` finds the step at which too many have stalled, and `Truncated`
cuts the episode there. `truncation` adds a rule to any method, as its `wrap`; the paper has PPO, GRPO and GSPO.
"""

from hf_credit.methods.t3.rules import RULES, Rule, Step, first_cut, hypotheses_left, make_rule
from hf_credit.methods.t3.truncated import CUTS, Truncated, TruncatedState, Truncation, truncation

__all__ = [
    "CUTS", "RULES", "Rule", "Step", "Truncated", "TruncatedState", "Truncation", "first_cut", "hypotheses_left",
    "make_rule", "truncation",
]  # fmt: skip
