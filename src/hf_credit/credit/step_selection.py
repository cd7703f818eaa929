"""Which steps are looked at, drawn with probabilities that are known (paper CVT-RL, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def inclusion_probabilities(scores: Sequence[float], expected: float, floor: float = 0.15) -> list[float]:
    """The probability with which each step is to be selected, rising with its score.

        q_t = clip(c * score_t, floor, 1),    c such that sum_t q_t = min(expected, T)

    Taking the steps of the highest scores instead would give all others a probability of 0, and no weight corrects
    that. Where the floor alone would select more than `expected`, it is lowered to expected / T.

    Args:
        scores: of the steps, at least 0: how likely it seems that looking at them tells something.
        expected: how many are to be selected in the mean, above 0.
        floor: the least probability, in (0, 1].

    Returns:
        Each in (0, 1].

    Raises:
        ValueError: a number is out of range.
    """
    if not expected > 0:
        raise ValueError(f"the expected number of selected steps must be above 0, got {expected}; raise it.")
    if not 0 < floor <= 1:
        raise ValueError(f"floor must be in (0, 1], got {floor}; the paper's is 0.15.")
    wrong = [score for score in scores if not (score >= 0 and math.isfinite(score))]
    if wrong:
        raise ValueError(f"scores must be finite and at least 0, got {wrong[0]}; mend the selector.")
    steps = len(scores)
    if expected >= steps:
        return [1.0] * steps
    floor = min(floor, expected / steps)

    scored = sum(score > 0 for score in scores)
    if scored + floor * (steps - scored) <= expected:  # no factor is high enough, so the others make up for the rest
        rest = (expected - scored) / (steps - scored)
        return [1.0 if score > 0 else rest for score in scores]

    def clipped(factor: float) -> list[float]:
        return [min(1.0, max(floor, factor * score)) for score in scores]

    low, high = 0.0, 1.0 / min(score for score in scores if score > 0)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(clipped(middle)) < expected else (low, middle)
    return clipped(high)


def systematic_sample(probabilities: Sequence[float], uniform: float) -> list[int]:
    """The places that are selected, each with its own probability exactly (systematic sampling, Madow 1949).

        t is selected if floor(C_t - u) > floor(C_{t-1} - u),    C_t = sum_{s <= t} q_s

    How many are selected is sum q, rounded down or up.

    Args:
        probabilities: in [0, 1].
        uniform: u, one draw from [0, 1).

    Raises:
        ValueError: a number is out of range.
    """
    if not 0 <= uniform < 1:
        raise ValueError(f"the draw must be in [0, 1), got {uniform}; take random.random().")
    outside = [one for one in probabilities if not 0 <= one <= 1]
    if outside:
        raise ValueError(f"probabilities must be in [0, 1], got {outside[0]}; clip them.")
    chosen, before = [], 0.0
    for place, probability in enumerate(probabilities):
        after = before + probability
        if math.floor(after - uniform) > math.floor(before - uniform):
            chosen.append(place)
        before = after
    return chosen
