"""Random selection of steps with known probabilities (paper CVT-RL, section 3.2)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hf_credit.validators import finite_number


def inclusion_probabilities(scores: Sequence[float], expected: float, floor: float = 0.15) -> list[float]:
    """The selection probability of each step, which increases with its score.

        q_t = clip(c * score_t, floor, 1),    c such that sum_t q_t = min(expected, T)

    Selecting the steps with the highest scores instead would give all others probability 0, which no weight corrects.
    If the floor alone would select more than `expected` steps, it is lowered to expected / T.

    Args:
        scores: of the steps, at least 0: the predicted probability that an intervention there is informative.
        expected: the mean number of selected steps, above 0.
        floor: the minimum probability, in (0, 1].

    Returns:
        Each in (0, 1].

    Raises:
        ValueError: a number is out of range.
    """
    finite_number("the expected number of selected steps", expected, above=0)
    finite_number("floor", floor, above=0, most=1)
    for score in scores:
        finite_number("the score of a step", score, 0)
    steps = len(scores)
    if expected >= steps:
        return [1.0] * steps
    floor = min(floor, expected / steps)

    scored = sum(score > 0 for score in scores)
    if scored + floor * (steps - scored) <= expected:  # no factor is high enough, so the others share the rest
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
    """The indices of the selected steps, each selected with exactly its probability (systematic sampling, Madow 1949).

        t is selected if floor(C_t - u) > floor(C_{t-1} - u),    C_t = sum_{s <= t} q_s

    The number of selected steps is sum q, rounded down or up.

    Args:
        probabilities: in [0, 1].
        uniform: u, one draw from [0, 1).

    Raises:
        ValueError: a number is out of range.
    """
    finite_number("the draw", uniform, 0, below=1)
    for probability in probabilities:
        finite_number("a probability", probability, 0, most=1)
    ends = [0.0, *itertools.accumulate(probabilities)]
    return [
        step
        for step, (before, after) in enumerate(itertools.pairwise(ends))
        if math.floor(after - uniform) > math.floor(before - uniform)
    ]
