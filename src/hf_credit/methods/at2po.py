"""AT2PO: the leaves of a tree in standard deviations, and for each turn above them the mean of what follows it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hf_credit.collectors import RolloutBatch, UncertainForks
from hf_credit.credit import group_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, step_weights, without_errors
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import finite_number

PAPER = paper(
    "AT$^2$PO: Agentic Turn-based Policy Optimization via Tree Search",
    arxiv="2601.04767",
)


def turn_values(parents: Int[Tensor, " vertices"], leaves: Float[Tensor, " vertices"]) -> Float[Tensor, " vertices"]:
    """The value of each vertex of a tree (AT2PO, arXiv:2601.04767).

        V(v) = its own of a leaf, else the plain mean of V over the children

    Every child weighs the same, however many leaves are under it.

    Args:
        parents: the index of each vertex's parent, which comes before it; -1 for a root.
        leaves: the values of the leaves; anything on the others.
    """
    children = torch.bincount(parents + 1, minlength=len(parents) + 1)[1:]
    values = torch.where(children == 0, leaves, 0)
    for vertex in range(len(parents) - 1, -1, -1):
        if (parent := int(parents[vertex])) >= 0:
            values[parent] += values[vertex] / children[parent]
    return values


@dataclass(frozen=True, kw_only=True)
class TurnValues:
    """`turn_values` of the tree of each instance, over the `group_advantages` of its leaves.

    Episodes that failed get no credit and are no leaf.

    Args:
        eps: as in `group_advantages`.
        equal_steps: whether decisions are weighed by `step_weights`, so that all steps of a tree weigh alike.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "trees"})

    eps: float = 1e-6
    equal_steps: bool = False

    def __post_init__(self) -> None:
        finite_number("eps", self.eps, above=0)

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        advantages = group_advantages(*outcomes_of(collected, rows), eps=self.eps).tolist()
        vertices: dict[Hashable, int] = {}
        parents: list[int] = []
        leaves: list[float] = []
        for row, advantage in zip(rows, advantages, strict=True):
            above = -1
            for step in collected.episodes[row].steps:
                if (name := step[0].id) not in vertices:
                    vertices[name] = len(parents)
                    parents.append(above)
                    leaves.append(advantage)
                above = vertices[name]
        values = turn_values(torch.tensor(parents, dtype=torch.long), torch.tensor(leaves, dtype=torch.float64))
        decisions = {
            decision.id: values[vertices[step[0].id]].item()
            for row in rows
            for step in collected.episodes[row].steps
            for decision in step
        }
        return Credit(decisions=decisions, weights=step_weights(collected) if self.equal_steps else {})


def at2po(
    initial: int = 4, forks: int = 12, forks_per_round: int = 6, eps: float = 1e-6, equal_steps: bool = False
) -> Method:
    """The method.

    Args:
        initial, forks, forks_per_round: as in `UncertainForks`.
        eps, equal_steps: as in `TurnValues`.
    """
    collector = UncertainForks(initial=initial, forks=forks, forks_per_round=forks_per_round)
    return Method(
        name="at2po", collector=collector, estimator=TurnValues(eps=eps, equal_steps=equal_steps), paper=PAPER
    )
