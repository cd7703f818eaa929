"""GRPO: an episode's outcome in standard deviations of its group, for each of its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import group_advantages
from hf_credit.credit.group_advantages import SCALES
from hf_credit.methods.base import (
    Credit,
    Method,
    all_gather_with_slice,
    broadcast_to_decisions,
    global_group_ids,
    paper,
    scatter_rows,
    without_errors,
)
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import finite_number

PAPER = paper(
    "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
    arxiv="2402.03300",
)


@dataclass(frozen=True, kw_only=True)
class GroupScore:
    """`group_advantages` of the outcomes of each instance. Episodes that failed get no credit.

    Args:
        scale, eps: as in `group_advantages`; the batch is that of all processes.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    scale: str = "group"
    eps: float = 1e-4

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r}; pick one.")
        finite_number("eps", self.eps, above=0)

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows, instances = without_errors(collected), global_group_ids(context, collected)
        told, own = all_gather_with_slice([(collected.episodes[row].outcome, instances[row]) for row in rows], context)
        outcomes = torch.tensor([outcome for outcome, _ in told], dtype=torch.float64)
        groups = torch.tensor([instance for _, instance in told], dtype=torch.long)
        advantages = group_advantages(outcomes, groups, self.scale, self.eps)[own]
        return Credit(decisions=broadcast_to_decisions(collected, scatter_rows(collected, rows, advantages)))


def grpo(group_size: int = 8, scale: str = "group", eps: float = 1e-4) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row.
        scale, eps: as in `GroupScore`; TRL's `scale_rewards` and its 1e-4.
    """
    estimator = GroupScore(scale=scale, eps=eps)
    return Method(name="grpo", collector=Group(size=group_size), estimator=estimator, paper=PAPER)
