"""How likely it is that looking at a step tells something, learned from steps that were looked at.

Paper CVT-RL, section 3.2 and Appendix A.2: a logistic model of a few features, calibrated by isotonic regression.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_RIDGE = 1e-2
_STEPS = 25

Example = tuple[tuple[float, ...], float]
"""The features of a step, and whether looking at it told something."""


@dataclass(frozen=True, kw_only=True)
class StepSelector:
    """A calibrated logistic model of steps, as a value that goes from update to update.

    Attributes:
        examples: the latest steps that were looked at.
        most: how many of them are kept.
        mean, scale: of each feature, by which it is standardised.
        weights: of each, the constant last; none before there are examples of both kinds.
        raw, calibrated: what the model said, rising, and the frequency that goes with it, at most that of the next.
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
        """Whether it tells steps from each other."""
        return len(self.weights) > 0

    def scores(self, features: Sequence[Sequence[float]]) -> list[float]:
        """The probability that looking at each step tells something; 1 for all before there are labels of both kinds.

        Args:
            features: of each step, finite, as many as in the examples.
        """
        if not self.fitted:
            return [1.0] * len(features)
        return [self._calibrated(one) for one in self._logistic(features).tolist()]

    def updated(self, examples: Sequence[Example]) -> StepSelector:
        """Fitted to the latest examples, these included.

        Logistic regression with a ridge of 0.01 an example, by Newton's method, and the isotonic regression of the
        labels on what it says, by pooling adjacent violators.

        Args:
            examples: of an update; with none, or with labels of one kind only, nothing is fitted anew.
        """
        kept = (*self.examples, *examples)[-self.most :]
        if not examples or len({label for _, label in kept}) < 2:
            return replace(self, examples=kept)
        table = torch.tensor([own for own, _ in kept], dtype=torch.float64)
        labels = torch.tensor([label for _, label in kept], dtype=torch.float64)
        mean, scale = table.mean(0), table.std(0, correction=0)
        scale = torch.where(scale > 1e-9, scale, 1.0)
        fitted = replace(
            self, examples=kept, mean=_numbers(mean), scale=_numbers(scale), weights=_numbers(_newton(table, labels))
        )
        said = fitted._logistic([own for own, _ in kept])
        raw, calibrated = pooled(said.tolist(), labels.tolist())
        return replace(fitted, raw=raw, calibrated=calibrated)

    def _logistic(self, features: Sequence[Sequence[float]]) -> Tensor:
        table = torch.tensor([list(one) for one in features], dtype=torch.float64).reshape(len(features), -1)
        standard = (table - torch.tensor(self.mean).double()) / torch.tensor(self.scale).double()
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return torch.sigmoid(standard @ weights[:-1] + weights[-1])

    def _calibrated(self, said: float) -> float:
        """Between two fitted places the line between their frequencies, and beyond them the last one's."""
        after = bisect.bisect_left(self.raw, said)
        if after in (0, len(self.raw)):
            return self.calibrated[min(after, len(self.raw) - 1)]
        low, high = self.raw[after - 1], self.raw[after]
        share = (said - low) / (high - low)
        return self.calibrated[after - 1] + share * (self.calibrated[after] - self.calibrated[after - 1])


def pooled(places: Sequence[float], labels: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The rising function of the places that is nearest to the labels: pool adjacent violators (Ayer et al., 1955).

    Args:
        places: of the labels; those at one place count as one, with their mean.
        labels: in [0, 1].

    Returns:
        The distinct places in order, and the function there.
    """
    found: dict[float, list[float]] = {}
    for place, label in zip(places, labels, strict=True):
        found.setdefault(place, []).append(label)
    blocks: list[tuple[float, int, int]] = []  # mean, labels, places
    for place in sorted(found):
        own = found[place]
        blocks.append((sum(own) / len(own), len(own), 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (low, few, wide), (high, many, more) = blocks[-2:]
            blocks[-2:] = [((low * few + high * many) / (few + many), few + many, wide + more)]
    return tuple(sorted(found)), tuple(mean for mean, _, wide in blocks for _ in range(wide))


def _newton(table: Tensor, labels: Tensor) -> Tensor:
    """The weights of standardised features, and the constant, of a logistic regression with a ridge."""
    mean, scale = table.mean(0), table.std(0, correction=0)
    standard = (table - mean) / torch.where(scale > 1e-9, scale, 1.0)
    design = torch.cat([standard, torch.ones(len(table), 1, dtype=torch.float64)], dim=1)
    ridge = _RIDGE * len(table) * torch.eye(design.shape[1], dtype=torch.float64)
    weights = torch.zeros(design.shape[1], dtype=torch.float64)
    for _ in range(_STEPS):
        said = torch.sigmoid(design @ weights)
        gradient = design.T @ (said - labels) + ridge @ weights
        curvature = design.T @ (design * (said * (1 - said))[:, None]) + ridge
        weights = weights - torch.linalg.solve(curvature, gradient)
    return weights


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
