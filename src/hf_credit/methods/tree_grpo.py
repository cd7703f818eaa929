"""Tree-GRPO: the leaves of several trees of a task, compared with all of the task's and with those of their tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_credit.collectors import RandomForks, RolloutBatch, tree_numbers
from hf_credit.credit import tree_group_advantages
from hf_credit.methods.base import (
    Credit,
    Method,
    broadcast_to_decisions,
    outcomes_of,
    paper,
    scatter_rows,
    step_weights,
    without_errors,
)
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import finite_number

PAPER = paper(
    "Tree Search for LLM Agent Reinforcement Learning",
    arxiv="2509.21240",
)


@dataclass(frozen=True, kw_only=True)
class TreeScore:
    """`tree_group_advantages` of the leaves; a decision above several of them gets the mean of theirs.

    Episodes that failed get no credit.

    Args:
        eps: as in `tree_group_advantages`.
        equal_steps: whether decisions are weighed by `step_weights`, so that all steps of a tree weigh alike.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    eps: float = 1e-4
    equal_steps: bool = False

    def __post_init__(self) -> None:
        finite_number("eps", self.eps, above=0)

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows, trees = without_errors(collected), tree_numbers(collected)
        own = torch.tensor([trees[row] for row in rows], dtype=torch.long)
        advantages = tree_group_advantages(*outcomes_of(collected, rows), own, self.eps)
        weights = step_weights(collected) if self.equal_steps else {}
        return Credit(
            decisions=broadcast_to_decisions(collected, scatter_rows(collected, rows, advantages)), weights=weights
        )


def tree_grpo(
    trees: int = 2, expansions: int = 2, rounds: int = 1, eps: float = 1e-4, equal_steps: bool = False
) -> Method:
    """The method.

    Args:
        trees, expansions, rounds: as in `RandomForks`.
        eps, equal_steps: as in `TreeScore`.
    """
    collector = RandomForks(trees=trees, expansions=expansions, rounds=rounds)
    return Method(
        name="tree_grpo", collector=collector, estimator=TreeScore(eps=eps, equal_steps=equal_steps), paper=PAPER
    )
