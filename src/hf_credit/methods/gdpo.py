"""GDPO: every decision of an episode gets a sum of rewards, each normalised in its group.

S[i] = sum_k w[k] (r_k[i] - mean_group r_k) / std_group r_k    (arXiv:2601.05242)
A[i] = (S[i] - mean S) / std S
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import decoupled_advantages
from hf_credit.methods.base import INPUTS, Credit, compare_outcomes, paper, without_errors
from hf_credit.methods.groups import OfGroups, of_groups
from hf_credit.options import Positive
from hf_credit.rollouts import Episode
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization", "2601.05242"
)


@dataclass(frozen=True, kw_only=True)
class Decoupled(OfGroups):
    """`decoupled_advantages` of the outcome and metrics of episodes, over all processes. Failed episodes get none.

    Args:
        rewards: the weight of each reward by its name: `"outcome"`, or one of the task's metrics, such as `"success"`.
            An episode without a metric is not compared by it, and an update in which none has it not at all.
        eps: added to standard deviations.

    Raises:
        ValueError: an option is out of range, or no reward is named.
    """

    rewards: Mapping[str, float] = field(default_factory=lambda: {"outcome": 1.0})
    eps: Positive = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rewards:
            raise ValueError("rewards must name at least one reward, got none; name outcome or a metric of the task.")

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        weights = torch.tensor([*self.rewards.values()], dtype=torch.float64)
        known = [self._of(collected.episodes[row]) for row in without_errors(collected)]
        for name, values in zip(self.rewards, zip(*known, strict=True), strict=False):
            context.mean(f"{INPUTS}{name}", [not math.isnan(value) for value in values])

        def advantages(outcomes: Tensor, groups: Tensor) -> Tensor:
            return decoupled_advantages(outcomes.reshape(-1, len(self.rewards)), groups, weights, self.eps)

        return Credit(decisions=compare_outcomes(collected, advantages, context, self._of))

    def _of(self, episode: Episode) -> list[float]:
        return [{**episode.metrics, "outcome": episode.outcome}.get(name, math.nan) for name in self.rewards]


gdpo = of_groups("gdpo", Decoupled(), PAPER)
