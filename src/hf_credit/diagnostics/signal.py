"""How much signal the gradient of a method has at a fixed policy, from independent collections."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hf_credit.evaluation.statistics import SHARE, Array, Interval, mean_interval, mean_with_interval
from hf_credit.rollouts import Ledger


@dataclass(frozen=True, kw_only=True)
class Played:
    """A collection, without its gradient.

    Attributes:
        cost: of all its episodes, with those for comparison.
        outcomes: of each trained episode its task, its outcome, and its metric `success`, NaN without it.
    """

    cost: Ledger
    outcomes: Sequence[tuple[Any, float, float]]

    def groups(self) -> list[set[float]]:
        """Returns the different outcomes of each group: the episodes of a task, or all if each task has only one."""
        known = _by_task([self], 1)
        return [set(own) for own in known if len(own) > 1] or [set[float]().union(*known)]


@dataclass(frozen=True, kw_only=True)
class Signal:
    """The signal of the gradient g of a collection, of K independent ones.

        S = (|sum g|^2 - sum |g|^2) / (K (K - 1)),   V = mean |g|^2 - S,   cost = tokens of a collection * V / S

    S estimates |E g|^2 and V estimates E |g - E g|^2, both without bias, so S may be negative: then no signal is
    measurable with K collections. It does not say whether g points the right way.

    Attributes:
        signal: S, with its jackknife interval over collections; without an upper end where fewer than 8, and less than
            three quarters, have a gradient, as its end would be too low far too often.
        variance: V.
        cost: generated tokens until the signal-to-noise ratio is 1, at S and at the ends of its interval; infinite
            where S is not positive.
        tokens: generated in a collection, those of replays and of episodes for comparison too.
        silent: share of collections whose gradient is 0.
        equal: share of groups (`Played.groups`) whose members all have one outcome.
        success: share of trained episodes that succeed, with its interval over tasks; NaN for tasks without it.
    """

    signal: Interval
    variance: float
    cost: Interval
    tokens: float
    silent: float
    equal: float
    success: Interval

    @property
    def measurable(self) -> bool:
        """Whether S is positive."""
        return self.signal.mean > 0

    def __str__(self) -> str:
        if not self.measurable:
            return f"none measurable with {self.signal.n} collections"
        high = "unbounded" if math.isinf(self.cost.high) else f"{self.cost.high:,.0f}"
        return f"{self.cost.mean:,.0f} [{self.cost.low:,.0f}, {high}]"


@dataclass(frozen=True, kw_only=True)
class SignalDiagnosis:
    """The signal of several methods at one policy, and its agreement with the goal.

    Attributes:
        signals: by method.
        cosines: of the expected gradients of two methods, by "A, B", where both have a signal: see `cosine`.
        agreement: by method, Spearman's correlation of the credit of replies and their worth, the mean return of
            executed replays that the credit does not use.
        not_measured: methods without it, each with the reason.
    """

    name: str
    signals: Mapping[str, Signal]
    cosines: Mapping[str, Interval]
    agreement: Mapping[str, Interval] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)


def signal(gradients: ArrayLike, played: Sequence[Played], confidence: float = 0.95) -> Signal:
    """Estimates the `Signal` of a method.

    Args:
        gradients: of shape (K, n), one for each of K >= 3 independent collections of one policy, or projections of
            them that keep inner products (`hf_credit.trainers.signal.Projected`).
        played: the collections.

    Raises:
        ValueError: there are fewer than 3 collections, or their numbers differ.
    """
    g = _checked(gradients)
    if len(g) != len(played):
        raise ValueError(f"each collection must have a gradient, got {len(g)} for {len(played)}; pass one of each.")
    found, heard = _strength(*_product(g, g), confidence), int(g.any(axis=1).sum())
    if heard < min(8, 0.75 * len(g)):
        found = replace(found, high=math.inf)
    size, tokens = float((g**2).sum(axis=1).mean()), float(np.mean([one.cost.completion_tokens for one in played]))

    ends = (found.mean, found.high, found.low)
    costs = [tokens * max(size - end, 0.0) / end if end > 0 else math.inf for end in ends]
    groups = [group for one in played for group in one.groups() if group]
    success = [fmean(own) for own in _by_task(played, 2)]
    return Signal(
        signal=found,
        variance=size - found.mean,
        cost=replace(found, mean=costs[0], low=costs[1], high=costs[2]),
        tokens=tokens,
        silent=1 - heard / len(g),
        equal=fmean(len(group) < 2 for group in groups) if groups else math.nan,
        success=mean_with_interval(success, confidence, SHARE),
    )


def _by_task(played: Sequence[Played], column: int) -> list[list[float]]:
    """Returns the known outcomes (column 1) or successes (2) of each task with any; one may come again."""
    found: dict[Any, list[float]] = defaultdict(list)
    for one in (one for collection in played for one in collection.outcomes):
        if not math.isnan(one[column]):
            found[one[0]].append(one[column])
    return [*found.values()]


def can_tell(played: Sequence[Played], share: float = 0.03, few: int = 8) -> bool:
    """Returns whether a share of successes of 0 is told from `share`, or `few` collections have a success or no task
    has the metric; never for fewer than the 3 that a `signal` needs."""
    known = [max(own) for own in _by_task(played, 2)]
    if len(played) < 3 or any(known) or not known:
        return len(played) >= max(few, 3)
    return len(known) > 1 and mean_interval(known, within=SHARE).high < share


def cosine(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Interval:
    """Estimates the cosine of the expected gradients of two methods, with its jackknife interval.

        C / sqrt(S S'),   C = mean of <g_k, g'_l> over k != l

    Only products of different collections count, since noise that methods share in a collection is no agreement. NaN
    if S or S' is not positive; an estimate outside [-1, 1] is set to its end.

    Args:
        first, second: as `gradients` of `signal`, of one projection; collections with one index may share episodes.
    """
    a, b = _checked(first), _checked(second)
    products, left = zip(*(_product(*pair) for pair in ((a, b), (a, a), (b, b))), strict=True)
    of_all = _ratio(*map(np.atleast_1d, products))[0]
    found = _jackknife(float(of_all), _ratio(*left), confidence)
    mean, low, high = np.clip([found.mean, found.low, found.high], -1, 1).tolist()
    return replace(found, mean=mean, low=low, high=high)


def _strength(value: float, without: Array, confidence: float) -> Interval:
    """Returns the interval of S, with that of its root where S is positive without any collection: of few, skewed
    collections each alone covers too rarely."""
    found = _jackknife(value, without, confidence)
    if min(value, *without) <= 0:
        return found
    root = _jackknife(math.sqrt(value), np.sqrt(without), confidence)
    low, high = (math.copysign(end * end, end) for end in (root.low, root.high))
    return replace(found, low=min(found.low, low), high=max(found.high, high))


def _jackknife(value: float, without: Array, confidence: float) -> Interval:
    """Returns the interval of a statistic by Student's of its pseudo-values (Tukey, 1958).

    Args:
        without: the statistic without each of n collections.
    """
    count = len(without)
    if not np.isfinite([value, *without]).all():
        return Interval(mean=value, low=math.nan, high=math.nan, confidence=confidence, n=count)
    found = mean_interval(count * value - (count - 1) * without, confidence)
    return replace(found, mean=value, low=found.low + value - found.mean, high=found.high + value - found.mean)


def _ratio(product: Array, first: Array, second: Array) -> Array:
    positive = (first > 0) & (second > 0)
    return np.where(positive, product / np.sqrt(np.where(positive, first * second, 1.0)), math.nan)


def _product(first: Array, second: Array) -> tuple[float, Array]:
    """Returns the mean of <a_k, b_l> over k != l, and the same without each collection."""
    products, count = first @ second.T, len(first)
    squares = np.diag(products)
    apart = products.sum() - squares.sum()
    left = apart - products.sum(axis=0) - products.sum(axis=1) + 2 * squares
    return float(apart / (count * (count - 1))), left / ((count - 1) * (count - 2))


def _checked(gradients: ArrayLike) -> Array:
    g = np.asarray(gradients, dtype=np.float64)
    if g.ndim != 2 or len(g) < 3:
        raise ValueError(f"a signal needs the gradients of at least 3 collections, got shape {g.shape}; play more.")
    if not np.isfinite(g).all():
        raise ValueError("gradients must be finite, got one that is not; lower the precision's range, or use float32.")
    return g
