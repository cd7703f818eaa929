"""Tree-GRPO: the leaves of several trees of a task, compared within their tree and with all leaves of the task.

A[i] = (R[i] - mean_tree R) / std_tree R + (R[i] - mean_task R) / std_task R    (arXiv:2509.21240)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hf_credit.collectors import RandomForks, RolloutBatch, tree_numbers
from hf_credit.credit import tree_group_advantages
from hf_credit.methods.base import Credit, Method, compare_outcomes, paper, without_errors
from hf_credit.methods.groups import OfGroups
from hf_credit.methods.trees import step_weights
from hf_credit.options import Positive, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Tree Search for LLM Agent Reinforcement Learning", arxiv="2509.21240")


@dataclass(frozen=True, kw_only=True)
class TreeScore(OfGroups):
    """`tree_group_advantages` of the leaves; a decision that several leaves share gets the mean of their advantages.

    Failed episodes get no credit.

    Args:
        eps: added to standard deviations.
        equal_steps: whether decisions are weighted by `step_weights`, so that all steps of a tree have equal weight.
    """

    eps: Positive = 1e-4
    equal_steps: bool = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        numbers = tree_numbers(collected)
        trees = torch.tensor([numbers[row] for row in without_errors(collected)], dtype=torch.long)
        return Credit(
            decisions=compare_outcomes(
                collected, lambda outcomes, groups: tree_group_advantages(outcomes, groups, trees, self.eps)
            ),
            weights=step_weights(collected) if self.equal_steps else {},
        )


@with_parts
def tree_grpo(collector: RandomForks = RandomForks(), estimator: TreeScore = TreeScore()) -> Method:
    """Returns the Tree-GRPO method."""
    return Method(name="tree_grpo", collector=collector, estimator=estimator, paper=PAPER)
