"""AT2PO: the outcomes of a tree's leaves, normalised by the group, and for each turn the mean over its children.

A(s, a) = V(s'),    V of a leaf = (R - mean_group R) / std_group R, else the mean of V over the branches
(arXiv:2601.04767)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_credit.collectors import RolloutBatch, UncertainForks
from hf_credit.credit import group_advantages, turn_values
from hf_credit.methods.base import Credit, Method, outcomes_of, paper
from hf_credit.methods.trees import StepTrees, step_weights
from hf_credit.options import Options, Positive, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("AT$^2$PO: Agentic Turn-based Policy Optimization via Tree Search", arxiv="2601.04767")


@dataclass(frozen=True, kw_only=True)
class TurnValues(Options):
    """`turn_values` of the tree of each instance, over the `group_advantages` of its leaves.

    Failed episodes get no credit and do not count as leaves.

    Args:
        eps: added to the standard deviation of the leaves.
        equal_steps: whether decisions are weighted by `step_weights`, so that all steps of a tree have equal weight.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "trees"})

    eps: Positive = 1e-6
    equal_steps: bool = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        trees = StepTrees(collected)
        leaves = torch.zeros(len(trees.parents), dtype=torch.float64)
        ends = [path[-1] for path in trees.paths]
        leaves[ends] = group_advantages(*outcomes_of(collected, trees.rows), eps=self.eps)
        values = turn_values(torch.tensor(trees.parents, dtype=torch.long), leaves).tolist()
        decisions = {decision.id: values[vertex] for decision, vertex in trees.decisions()}
        return Credit(decisions=decisions, weights=step_weights(collected) if self.equal_steps else {})


@with_parts
def at2po(
    collector: UncertainForks = UncertainForks(forks=12, forks_per_round=6), estimator: TurnValues = TurnValues()
) -> Method:
    """Returns the AT2PO method."""
    return Method(name="at2po", collector=collector, estimator=estimator, paper=PAPER)
