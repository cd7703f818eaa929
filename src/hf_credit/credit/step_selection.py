"""Random selection of steps with known probabilities, and a model that predicts where an intervention is informative.

Paper CVT-RL, section 3.2 and Appendix A.2: a logistic model of a few features, calibrated by isotonic regression.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hf_credit.credit.replay_allocation import pooled_blocks
from hf_credit.logistic import logistic_weights
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


def _interpolated(value: float, x: Sequence[float], y: Sequence[float]) -> float:
    """The value of the line through points, constant outside of them."""
    after = bisect_right(x, value)
    if after in (0, len(x)):
        return y[min(after, len(x) - 1)]
    (left, right), (low, high) = x[after - 1 : after + 1], y[after - 1 : after + 1]
    return low + (high - low) * (value - left) / (right - left)


Example = tuple[tuple[float, ...], float]
"""The features of a step, and whether an intervention there was informative."""


@dataclass(frozen=True, kw_only=True)
class StepSelector:
    """A calibrated logistic model of steps, as an immutable value.

    Attributes:
        examples: the latest examples.
        most: the maximum number of kept examples.
        mean, scale: of each feature, which standardise it.
        weights: of the standardised features, then the constant; empty without examples of both labels.
        raw, calibrated: predictions of the logistic model in increasing order, and their calibrated probabilities, in
            non-decreasing order.
    """

    examples: tuple[Example, ...] = ()
    most: int = 2000
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    raw: tuple[float, ...] = ()
    calibrated: tuple[float, ...] = ()

    @property
    def fitted(self) -> bool:
        """Whether the model is fitted."""
        return len(self.weights) > 0

    def scores(self, features: Sequence[Sequence[float]]) -> list[float]:
        """The probability that an intervention at each step is informative; 1 for all steps if not `fitted`.

        Args:
            features: of each step, finite, as many as in the examples.
        """
        if not self.fitted:
            return [1.0] * len(features)
        return [_interpolated(one, self.raw, self.calibrated) for one in self._logistic(features)]

    def updated(self, examples: Sequence[Example]) -> StepSelector:
        """The model fitted to the latest examples, including these.

        Logistic regression with a ridge of 0.01 per example, by Newton's method, then isotonic regression of the
        labels on its predictions, by pooling adjacent violators.

        Args:
            examples: of an update. Without any, or if all kept labels are equal, the model does not change.
        """
        kept = (*self.examples, *examples)[-self.most :]
        if not examples or len({label for _, label in kept}) < 2:
            return replace(self, examples=kept)
        features, labels = zip(*kept, strict=True)
        table = torch.tensor(features, dtype=torch.float64)
        mean, scale = table.mean(0), table.std(0, correction=0)
        scale = torch.where(scale > 1e-9, scale, 1.0)
        design = torch.cat([(table - mean) / scale, torch.ones(len(table), 1, dtype=torch.float64)], dim=1)
        weights = logistic_weights(design, torch.tensor(labels, dtype=torch.float64), 0.01 * len(table))
        fitted = replace(self, examples=kept, mean=_numbers(mean), scale=_numbers(scale), weights=_numbers(weights))
        raw, calibrated = pooled(fitted._logistic(features), labels)
        return replace(fitted, raw=raw, calibrated=calibrated)

    def _logistic(self, features: Sequence[Sequence[float]]) -> list[float]:
        mean, scale, weights = (
            torch.tensor(one, dtype=torch.float64) for one in (self.mean, self.scale, self.weights)
        )
        table = torch.tensor([list(one) for one in features], dtype=torch.float64).reshape(len(features), -1)
        predictions: list[float] = torch.sigmoid((table - mean) / scale @ weights[:-1] + weights[-1]).tolist()
        return predictions


def pooled(places: Sequence[float], labels: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The non-decreasing function of the places nearest to the labels: pool adjacent violators (Ayer et al., 1955).

    Args:
        places: of the labels; labels at the same place count as one, with their mean.
        labels: in [0, 1].

    Returns:
        The distinct places in order, and the function there.
    """
    by_place: dict[float, list[float]] = {}
    for place, label in sorted(zip(places, labels, strict=True)):
        by_place.setdefault(place, []).append(label)
    blocks = pooled_blocks((float(sum(group)), float(len(group))) for group in by_place.values())
    return tuple(by_place), tuple(total / count for total, count, size in blocks for _ in range(size))


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
