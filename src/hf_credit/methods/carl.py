"""CARL: more rollouts from the states where the policy is most uncertain, and credit only at forks.

A(s, a) = V(s') - V(s),    V of a leaf = R, else the mean of V over the branches    (arXiv:2512.04949)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_credit.collectors import RolloutBatch, UncertainForks
from hf_credit.credit import branch_advantages
from hf_credit.methods.base import Credit, Method, paper
from hf_credit.methods.trees import StepTrees, step_weights
from hf_credit.options import Options, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("CARL: Criticality-Aware Agentic Reinforcement Learning", arxiv="2512.04949")


@dataclass(frozen=True, kw_only=True)
class Branches(Options):
    """`branch_advantages` of the tree of each instance; a step without an alternative from its state gets no credit.

    Failed episodes get no credit and do not count as branches.

    Args:
        equal_steps: whether decisions are weighted by `step_weights`, so that all steps of a tree have equal weight.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"alternatives", "trees"})

    equal_steps: bool = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        trees = StepTrees(collected)
        outcomes = torch.zeros(len(trees.parents), dtype=torch.float64)
        for row, (*_, end) in zip(trees.rows, trees.paths, strict=True):
            outcomes[end] = collected.episodes[row].outcome
        parents = torch.tensor(trees.parents, dtype=torch.long)
        advantages, siblings = (values.tolist() for values in branch_advantages(parents, outcomes))
        decisions = {one.id: advantages[vertex] for one, vertex in trees.decisions() if siblings[vertex] > 1}
        return Credit(decisions=decisions, weights=step_weights(collected) if self.equal_steps else {})


@with_parts
def carl(collector: UncertainForks = UncertainForks(), estimator: Branches = Branches()) -> Method:
    """Returns the CARL method."""
    return Method(name="carl", collector=collector, estimator=estimator, paper=PAPER)
