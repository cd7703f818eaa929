"""Equal weight for rare and frequent classes in a loss, and the correction of the predicted probabilities."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from hf_credit.validators import finite_number

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
