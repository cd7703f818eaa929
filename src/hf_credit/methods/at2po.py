"""AT2PO: the leaves of a tree in standard deviations, and for each turn the mean of its children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hf_credit.collectors import RolloutBatch, UncertainForks
from hf_credit.credit import group_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper
from hf_credit.methods.trees import StepTrees, step_weights
from hf_credit.options import Options, Positive, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "AT$^2$PO: Agentic Turn-based Policy Optimization via Tree Search",
    arxiv="2601.04767",
)


def turn_values(parents: Int[Tensor, " vertices"], leaves: Float[Tensor, " vertices"]) -> Float[Tensor, " vertices"]:
    """The value of each vertex of a tree (AT2PO, arXiv:2601.04767).

        V(v) = the value of a leaf, else the plain mean of V over the children

    Every child has the same weight, whatever its number of leaves.

    Args:
        parents: the index of each vertex's parent, which comes before it; -1 for a root.
        leaves: the values of the leaves; other entries are ignored.
    """
    children = torch.bincount(parents + 1, minlength=len(parents) + 1)[1:]
    values = torch.where(children == 0, leaves, 0)
    for vertex in range(len(parents) - 1, -1, -1):
        if (parent := int(parents[vertex])) >= 0:
            values[parent] += values[vertex] / children[parent]
    return values


@dataclass(frozen=True, kw_only=True)
class TurnValues(Options):
    """`turn_values` of the tree of each instance, over the `group_advantages` of its leaves.

    Failed episodes get no credit and do not count as leaves.

    Args:
        eps: added to the deviation of the leaves.
        equal_steps: whether decisions are weighted by `step_weights`, so that all steps of a tree have equal weight.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "trees"})

    eps: Positive = 1e-6
    equal_steps: bool = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        trees = StepTrees(collected)
        leaves = torch.zeros(len(trees.parents), dtype=torch.float64)
        leaves[trees.ends] = group_advantages(*outcomes_of(collected, trees.rows), eps=self.eps)
        values = turn_values(torch.tensor(trees.parents, dtype=torch.long), leaves).tolist()
        return Credit(
            decisions={one.id: values[vertex] for one, vertex in trees.decisions()},
            weights=step_weights(collected) if self.equal_steps else {},
        )


@with_parts
def at2po(
    collector: UncertainForks = UncertainForks(forks=12, forks_per_round=6), estimator: TurnValues = TurnValues()
) -> Method:
    """The method."""
    return Method(name="at2po", collector=collector, estimator=estimator, paper=PAPER)
