"""Losses of critics: the squared error clipped around earlier values, and classes of equal weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hf_credit.credit.inputs import as_mask, working_dtype
from hf_credit.credit.shapes import Bool, Float, Real
from hf_credit.validators import finite_number


def clipped_value_errors(
    values: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    old_values: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    returns: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    clip: float | int | None,
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """The error at each position of `clipped_value_loss`, and where the clipped value determines it.

    Args:
        values, old_values, returns, clip: as in `clipped_value_loss`.

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


def clipped_value_loss(
    values: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    old_values: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    returns: Real[Tensor, "*shape"] | Bool[Tensor, "*shape"],
    mask: Bool[Tensor, "*shape"] | Real[Tensor, "*shape"],
    clip: float | int | None,
    total: float | int | None = None,
) -> Float[Tensor, ""]:
    """PPO's clipped value loss, a mean over the mask.

        L = mean_t 0.5 max((v[t] - R[t])^2, (clip(v[t], v_old[t] - clip, v_old[t] + clip) - R[t])^2)

    This is the value loss of public PPO implementations for language models, on which the MAPPO baseline of paper C3
    and the PPO of paper T3 (on verl) build; neither paper specifies it.

    Args:
        values: the critic's predictions, with gradients. Entries off the mask are ignored, as in the next two.
        old_values: its predictions before this update, without gradients.
        returns: its targets, in the unit of the reward.
        mask: true (or 1) where there is a target.
        clip: the maximum change from the old value, above 0, in the unit of the reward; `None` is the plain squared
            error, which ignores the old values.
        total: the divisor of the sum over the mask: for a part of a batch, the number of targets of the whole batch.
            The number of targets in `mask` if `None`.

    Returns:
        The loss, in at least float32; 0 if the mask is empty.

    Raises:
        ValueError: `clip` is not above 0, shapes differ, or `mask` is not a mask.
    """
    if not values.shape == old_values.shape == returns.shape == mask.shape:
        raise ValueError(
            f"values, old_values, returns and mask must have one shape, got {tuple(values.shape)}, "
            f"{tuple(old_values.shape)}, {tuple(returns.shape)} and {tuple(mask.shape)}; pad all alike."
        )
    mask = as_mask(mask)
    values, old_values, returns = (torch.where(mask, tensor, 0) for tensor in (values, old_values, returns))
    errors, _ = clipped_value_errors(values, old_values, returns, clip)
    return errors.sum() / (mask.sum().clamp(min=1) if total is None else total)


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
