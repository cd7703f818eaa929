"""Losses of critics: the squared error clipped around earlier values, and classes of equal weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hf_credit.credit.inputs import working_dtype
from hf_credit.credit.shapes import Bool, Float, Real
from hf_credit.validators import finite_number


def clipped_value_errors(
    values: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    old_values: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    returns: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    clip: float | int | None,
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """The error of PPO's clipped value loss at each position, and where the clipped value determines it.

        0.5 max((v - R)^2, (clip(v, v_old - clip, v_old + clip) - R)^2)

    This is the value loss of public PPO implementations for language models, on which the MAPPO baseline of paper C3
    and the PPO of paper T3 (on verl) build; neither paper specifies it.

    Args:
        values: the critic's predictions, with gradients.
        old_values: its predictions before this update, without gradients.
        returns: its targets, in the unit of the reward.
        clip: the maximum change from the old value, above 0, in the unit of the reward; `None` is the plain squared
            error, which ignores the old values.

    Returns:
        Errors, in at least float32; and a mask of the positions whose clipped value is further from the target than
        the value, where no gradient flows.

    Raises:
        ValueError: `clip` is not above 0.
    """
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be above 0, got {clip}; give None for the plain squared error.")
    dtype = working_dtype(values)
    values, old_values, returns = values.to(dtype), old_values.to(dtype), returns.to(dtype)
    plain = (values - returns).square()
    if clip is None:
        return 0.5 * plain, torch.zeros_like(plain, dtype=torch.bool)
    clipped = (values.clamp(old_values - clip, old_values + clip) - returns).square()
    larger = clipped > plain
    return 0.5 * torch.where(larger, clipped, plain), larger  # if both are equal, the gradient is that of `plain`


_LEAST = 1e-3


def class_weights(targets: Float[Tensor, " targets"], rate: float) -> Float[Tensor, " targets"]:
    """Weights that give an event and its absence the same total weight in a loss (paper CVT-RL, Appendix A.2).

        w = y / (2 r) + (1 - y) / (2 (1 - r)),    whose mean is 1

    The log-odds that minimise the weighted cross-entropy exceed those of the event by `balance_log_odds(rate)`;
    subtract it.

    Args:
        targets: y, whether the event occurred, or its probability, in [0, 1].
        rate: r, the frequency of the event, in [0, 1]; clipped to [0.001, 0.999].
    """
    rate = _clipped(rate)
    return targets / (2 * rate) + (1 - targets) / (2 * (1 - rate))


def balance_log_odds(rate: float) -> float:
    """The increase of an event's log-odds by `class_weights`: log((1 - r) / r).

    Args:
        rate: as for `class_weights`.
    """
    rate = _clipped(rate)
    return math.log((1 - rate) / rate)


def _clipped(rate: float) -> float:
    return min(max(finite_number("the rate of an event", rate, 0, most=1), _LEAST), 1 - _LEAST)
