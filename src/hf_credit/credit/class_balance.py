"""Classes that weigh the same in a loss, and the probabilities that are meant all the same."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

_LEAST = 1e-3


def class_weights(targets: Float[Tensor, " targets"], rate: float) -> Float[Tensor, " targets"]:
    """Weights with which an event and its absence count the same in a loss (paper CVT-RL, Appendix A.2).

        w = y / (2 r) + (1 - y) / (2 (1 - r)),    whose mean is 1

    A model that minimises the weighted cross-entropy says other log-odds than those of the event, by
    `balance_log_odds(rate)`, which has to be taken off.

    Args:
        targets: y, whether the event occurred, or how likely it was, in [0, 1].
        rate: r, how often it occurs, in [0, 1]; nearer to an end than 0.001 it counts as that.
    """
    rate = _within(rate)
    return targets / (2 * rate) + (1 - targets) / (2 * (1 - rate))


def balance_log_odds(rate: float) -> float:
    """What `class_weights` add to the log-odds of an event: log((1 - r) / r).

    Args:
        rate: as for `class_weights`.
    """
    rate = _within(rate)
    return math.log((1 - rate) / rate)


def _within(rate: float) -> float:
    if not 0 <= rate <= 1:
        raise ValueError(f"the rate of an event must be in [0, 1], got {rate}; count the events among the targets.")
    return min(max(rate, _LEAST), 1 - _LEAST)
