"""RLOO: every decision of an episode gets its outcome minus the mean of the other episodes of its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import leave_one_out
from hf_credit.methods.base import Credit, Method, compare_outcomes, paper
from hf_credit.options import GroupSize, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arxiv="2402.14740",
)


@dataclass(frozen=True, kw_only=True)
class OthersMean:
    """`leave_one_out` of the outcomes of each instance. Failed episodes get no credit."""

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        return Credit(decisions=compare_outcomes(collected, leave_one_out))


@with_parts
def rloo(group_size: GroupSize = 8) -> Method:
    """Returns the RLOO method."""
    return Method(name="rloo", collector=Group(size=group_size), estimator=OthersMean(), paper=PAPER)
