"""RLOO: an episode's outcome less the mean of the others of its task, for each of its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import leave_one_out
from hf_credit.methods.base import (
    Credit,
    Method,
    broadcast_to_decisions,
    outcomes_of,
    paper,
    scatter_rows,
    without_errors,
)
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arxiv="2402.14740",
)


@dataclass(frozen=True, kw_only=True)
class OthersMean:
    """`leave_one_out` of the outcomes of each instance. Episodes that failed get no credit."""

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        advantages = leave_one_out(*outcomes_of(collected, rows))
        return Credit(decisions=broadcast_to_decisions(collected, scatter_rows(collected, rows, advantages)))


def rloo(group_size: int = 8) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row.
    """
    return Method(name="rloo", collector=Group(size=group_size), estimator=OthersMean(), paper=PAPER)
