"""RLOO: every decision of an episode gets its outcome minus the mean of the other episodes of its group."""

from __future__ import annotations

from dataclasses import dataclass

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import leave_one_out
from hf_credit.methods.base import Credit, compare_outcomes, paper
from hf_credit.methods.groups import OfGroups, of_groups
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arxiv="2402.14740",
)


@dataclass(frozen=True, kw_only=True)
class OthersMean(OfGroups):
    """`leave_one_out` of the outcomes of each instance. Failed episodes get no credit."""

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        return Credit(decisions=compare_outcomes(collected, leave_one_out))


rloo = of_groups("rloo", OthersMean(), PAPER)
