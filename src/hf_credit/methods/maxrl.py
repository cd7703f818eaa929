"""MaxRL: every decision of an episode gets its outcome minus the mean of its group, divided by that mean.

A[i] = (R[i] - mean_group R) / mean_group R    (arXiv:2602.02710)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_credit.credit import full_mean
from hf_credit.credit.shapes import Float, Int
from hf_credit.methods.base import paper
from hf_credit.methods.groups import OfEpisodes, of_groups
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import OutcomeRange

PAPER = paper("Maximum Likelihood Reinforcement Learning", arxiv="2602.02710")


def mean_scaled(outcomes: Float[Tensor, " rollouts"], groups: Int[Tensor, " rollouts"]) -> Float[Tensor, " rollouts"]:
    """Returns the advantage of each rollout by MaxRL (arXiv:2602.02710).

        A[i] = (R[i] - mean) / mean,    0 if mean = 0,    mean over the group of i

    Args:
        outcomes: R, finite and at least 0, in the unit of the reward.
        groups: the group of each rollout, any integers.

    Returns:
        Without a unit; at least -1 and below the size of the group.

    Raises:
        ValueError: an outcome is negative or not finite, or the shapes differ.
    """
    if bool((outcomes < 0).any()):
        raise _below_zero(outcomes.min().item())
    centred = full_mean(outcomes, groups)
    mean = outcomes - centred
    return torch.where(mean > 0, centred / mean, 0)


def _below_zero(outcome: float) -> ValueError:
    return ValueError(f"outcomes must be at least 0 for MaxRL, got {outcome}; shift them, or use the method grpo.")


@dataclass(frozen=True, kw_only=True)
class MeanScaled(OfEpisodes):
    """`mean_scaled` of the outcomes of each instance. Failed episodes get no credit."""

    advantages = staticmethod(mean_scaled)

    def bind(self, interaction: Interaction[Any]) -> MeanScaled:
        """Returns the estimator unchanged.

        Raises:
            ValueError: outcomes of the Interaction may be negative.
        """
        known = OutcomeRange(interaction).outcome_range
        if known is not None and known[0] < 0:
            raise _below_zero(known[0])
        return self


maxrl = of_groups("maxrl", MeanScaled(), PAPER)
