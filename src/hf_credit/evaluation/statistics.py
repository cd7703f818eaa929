"""Confidence intervals of means and differences, permutation tests, and multiple testing.

A score is one number per unit (a held-out task, an episode, a training seed). Two methods are compared by paired
differences on the same units, as the spread between units is usually larger than the difference between methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hf_credit.optional_packages import needed
from hf_credit.validators import finite_number, whole_number

Array = NDArray[np.float64]

SHARE = (0.0, 1.0)
"""The range of a share."""

_ROUNDING = 1e-9
_BATCH = 1_000_000
"""The maximum number of drawn values in memory."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        mean: the mean of the sample.
        low, high: the ends of the interval, `low <= high`.
        confidence: the share of such intervals that contain the true mean, in (0, 1).
        n: the number of values, or of pairs.
    """

    mean: float
    low: float
    high: float
    confidence: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] ({100 * self.confidence:g}% interval, n = {self.n})"


@dataclass(frozen=True, kw_only=True)
class PermutationTest:
    """The result of a permutation test.

    Attributes:
        mean: the mean of the paired differences.
        p_value: the two-sided p-value, in (0, 1].
        exact: whether all 2^n sign patterns were counted; otherwise patterns were drawn.
        n: the number of pairs.
    """

    mean: float
    p_value: float
    exact: bool
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} (p = {self.p_value:.3g}, {'exact' if self.exact else 'drawn'}, n = {self.n})"


def mean_interval(values: ArrayLike, confidence: float = 0.95, within: tuple[float, float] | None = None) -> Interval:
    """Computes the confidence interval of a mean: Wilson's if the values have a range, else Student's.

    With a range, scaled to [0, 1], mean m and the normal quantile q it is Wilson's score interval (Probable Inference,
    1927),

        (m + q^2/2e +- q sqrt(m(1 - m)/e + q^2/4e^2)) / (1 + q^2/e)

    Of values 0 and 1, e is their number n. Of others it is the effective number n m(1 - m)/s^2 (Franco et al.,
    Comparative Study of Confidence Intervals for Proportions in Complex Sample Surveys, 2019), and q is Student's
    quantile. n equal values v do not tell their spread; any other value then has a probability of at most
    w = q^2/(n + q^2), as for 0 of n, so the ends are v - wv and v + w(1 - v).

    Without a range, with the sample standard deviation s,

        mean +- t(1 - alpha/2; n - 1) * s / sqrt(n),   alpha = 1 - confidence

    The coverage is exact for normal values, and nearly so for symmetric or many ones (Student, The Probable Error of a
    Mean, 1908). The ends can exceed the range of the data; so does the true mean, for five values once in 16 samples.
    Equal values give an interval of width zero.

    Args:
        values: n >= 2 finite numbers, one per independent unit.
        confidence: the level, in (0, 1).
        within: the range of the values, such as `SHARE`. If only one end is finite, it bounds Student's interval.

    Raises:
        ValueError: there are fewer than two values, a value is not a finite number, or an option is out of range.
        ImportError: scipy is missing.
    """
    sample = sample_of("values", values)
    low, high = (-math.inf, math.inf) if within is None else within
    if not (low <= sample.min() and sample.max() <= high and low < high):
        raise ValueError(
            f"values must be within [{low:g}, {high:g}], got {sample.min():g} to {sample.max():g}; correct the range."
        )
    if math.isfinite(low) and math.isfinite(high):
        return _score(sample, confidence, low, high)
    found = _student([sample], confidence)
    return replace(found, low=max(found.low, low), high=min(found.high, high))


def mean_with_interval(
    values: Sequence[float], confidence: float = 0.95, within: tuple[float, float] | None = None
) -> Interval:
    """Computes `mean_interval`; for one value the ends are NaN, for none also the mean.

    Args:
        values, confidence, within: as in `mean_interval`.
    """
    if len(values) > 1:
        return mean_interval(values, confidence, within)
    mean = float(values[0]) if values else math.nan
    return Interval(mean=mean, low=math.nan, high=math.nan, confidence=confidence, n=len(values))


def clustered_interval(
    clusters: Sequence[Array],
    measure: Callable[[Array, Array], Array],
    confidence: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> Interval:
    """Computes the percentile bootstrap interval of a statistic of observations that are dependent within clusters.

    Whole clusters are resampled (Davison and Hinkley, 1997, section 3.8). Resamples with a NaN statistic are omitted.

    Args:
        clusters: at least one; each is an array with one row per observation.
        measure: computes the statistic of each resample from the n rows of all clusters and the number of times that
            each resample contains each row (resamples x n).
        confidence: as in `mean_interval`.
        resamples: the number of bootstrap resamples, at least 1.
        seed: of the resampling; equal arguments give equal intervals.

    Returns:
        The interval, where `n` is the number of clusters. The ends are NaN with fewer than two clusters, or if the
        statistic of all clusters is NaN.

    Raises:
        ValueError: an option is out of range.
    """
    finite_number("confidence", confidence, above=0, below=1)
    whole_number("resamples", resamples, 1)
    rows, sizes = np.concatenate(clusters), [len(cluster) for cluster in clusters]
    mean, low, high = float(measure(rows, np.ones((1, len(rows))))[0]), math.nan, math.nan
    if len(clusters) > 1 and not math.isnan(mean):
        draws = np.random.default_rng(seed).integers(len(clusters), size=(resamples, len(clusters)))
        counts = np.zeros((resamples, len(clusters)))
        np.add.at(counts, (np.arange(resamples)[:, None], draws), 1)
        at_once = max(1, _BATCH // len(rows))
        parts = [counts[start : start + at_once] for start in range(0, resamples, at_once)]
        drawn = np.concatenate([measure(rows, np.repeat(part, sizes, axis=1)) for part in parts])
        if len(known := drawn[~np.isnan(drawn)]):
            low, high = (float(end) for end in np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2]))
    return Interval(mean=mean, low=low, high=high, confidence=confidence, n=len(clusters))


def paired_difference(
    a: ArrayLike, b: ArrayLike, confidence: float = 0.95, within: tuple[float, float] | None = None
) -> Interval:
    """Computes the interval of the mean of a_i - b_i, as `mean_interval` of the differences.

    Args:
        a, b: n >= 2 finite numbers each; `a[i]` and `b[i]` belong to the same unit.
        confidence: as in `mean_interval`.
        within: the range of the values of a and b.

    Raises:
        ValueError: the lengths differ, or as in `mean_interval`.
        ImportError: scipy is missing.
    """
    between = None if within is None else (within[0] - within[1], within[1] - within[0])
    return mean_interval(_differences(a, b), confidence, between)


def stratified_paired_difference(
    a: ArrayLike, b: ArrayLike, strata: Sequence[Hashable], confidence: float = 0.95
) -> Interval:
    """Computes the interval of the mean of a_i - b_i from the spread within strata.

    The strata k = 1..K have n_k pairs each, n = sum_k n_k. The interval is Student's with the degrees of freedom of
    Welch and Satterthwaite (1946):

        mean +- t(1 - alpha/2; nu) * sqrt(sum_k v_k),   v_k = (n_k / n)^2 * s_k^2 / n_k
        nu = (sum_k v_k)^2 / sum_k (v_k^2 / (n_k - 1))

    The mean is that of `paired_difference`. The spread between strata does not count, so the interval covers only
    these strata:

    - strata = kinds of tasks, pairs = training seeds: the interval covers other seeds on these tasks.
    - strata = training seeds, pairs = held-out tasks: the interval covers other tasks for these policies, but not
      other training runs. To show that a method trains better, the unit is the seed: average the tasks of each seed
      and pass one pair per seed to `paired_difference`.

    Args:
        a, b: n finite numbers each; `a[i]` and `b[i]` belong to the same unit.
        strata: n labels; each label must occur at least twice.
        confidence: as in `mean_interval`.

    Raises:
        ValueError: the lengths differ, a stratum has only one pair, or as in `mean_interval`.
        ImportError: scipy is missing.
    """
    differences = _differences(a, b)
    if len(strata) != len(differences):
        raise ValueError(
            f"strata must have one label per pair, got {len(strata)} labels for {len(differences)} pairs; "
            "pass lists of equal length."
        )
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(strata):
        members.setdefault(label, []).append(index)
    for label, indices in members.items():
        if len(indices) < 2:
            raise ValueError(
                f"every stratum must have at least two pairs, got one in {label!r}; merge it with another stratum."
            )
    return _student([differences[indices] for indices in members.values()], confidence)


def permutation_test(a: ArrayLike, b: ArrayLike, resamples: int = 10_000, seed: int = 0) -> PermutationTest:
    """Performs the two-sided paired permutation test of the hypothesis that a and b do not differ.

    Under the hypothesis, each difference d_i = a_i - b_i has either sign with probability 1/2, so with signs s

        p = #{s in {-1, +1}^n : |mean(s d)| >= |mean(d)|} / 2^n

    (Fisher, The Design of Experiments, 1935, section 21). If 2^n > `resamples`, that many sign patterns are drawn
    instead, and the p-value is twice the smaller tail's (hits + 1) / (resamples + 1), at most 1, which is never 0
    (Phipson and Smyth, 2010).

    Args:
        a, b: n >= 2 finite numbers each; `a[i]` and `b[i]` belong to the same unit.
        resamples: the maximum number of sign patterns, at least 1.
        seed: of the drawn patterns.

    Raises:
        ValueError: the lengths differ, there are fewer than two pairs, a value is not a finite number, or `resamples`
            is below 1.
        ImportError: scipy is missing.
    """
    differences = _differences(a, b)
    n = len(differences)
    whole_number("resamples", resamples, 1)
    result = needed("statistics need", "scipy.stats", "statistics").permutation_test(
        (differences,),
        lambda sample, axis: np.mean(sample, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, _BATCH // n),
        alternative="two-sided",
        rng=np.random.default_rng(seed),
    )
    return PermutationTest(mean=float(result.statistic), p_value=float(result.pvalue), exact=2**n <= resamples, n=n)


def holm(p_values: ArrayLike) -> tuple[float, ...]:
    """Returns Holm's adjusted p-values of a family of m tests, in the order given.

    With p_(1) <= ... <= p_(m),

        adjusted p_(j) = min(1, max_{i <= j} (m - i + 1) * p_(i))

    (Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979). Rejecting the tests with an adjusted p-value
    of at most alpha bounds the probability of any false rejection in the family by alpha, for any dependence.

    Args:
        p_values: m >= 1 numbers in [0, 1].

    Raises:
        ValueError: there is no p-value, or one is outside [0, 1].
        ImportError: statsmodels is missing.
    """
    values = sample_of("p_values", p_values, least=1)
    for value in values.tolist():
        finite_number("p_values", value, 0, most=1)
    adjusted = needed("statistics need", "statsmodels.stats.multitest", "statistics").multipletests(
        values, method="holm"
    )[1]
    return tuple(map(float, adjusted))


def _score(sample: Array, confidence: float, low: float, high: float) -> Interval:
    """Returns Wilson's interval of the mean of values in [low, high]."""
    finite_number("confidence", confidence, above=0, below=1)
    law = needed("statistics need", "scipy.stats", "statistics")
    n, q = len(sample), float(law.norm.ppf((1 + confidence) / 2))
    values = (sample - low) / (high - low)
    equal = bool(np.ptp(values) < _ROUNDING)
    mean = float(values[0] if equal else values.mean())
    if equal:
        rare = q**2 / (n + q**2)
        first, last = mean - rare * mean, mean + rare * (1 - mean)
    else:
        known = np.isin(values, (0.0, 1.0)).all()
        q = q if known else float(law.t.ppf((1 + confidence) / 2, n - 1))
        ratio = q**2 / (n if known else n * mean * (1 - mean) / float(values.var(ddof=1)))
        half = math.sqrt(ratio * mean * (1 - mean) + ratio**2 / 4)
        first, last = ((mean + ratio / 2 + end) / (1 + ratio) for end in (-half, half))
    ends = (low + (high - low) * min(max(end, 0.0), 1.0) for end in (first, mean, last))
    first, mean, last = sorted(ends)  # equal ones can differ by rounding
    return Interval(mean=mean, low=first, high=last, confidence=confidence, n=n)


def _student(samples: list[Array], confidence: float) -> Interval:
    """Returns Student's interval of the mean of all samples from the spread within each; of one sample the degrees of
    freedom are n - 1."""
    finite_number("confidence", confidence, above=0, below=1)
    sizes = np.array([len(sample) for sample in samples])
    n = int(sizes.sum())
    mean = sum(float(sample.sum()) for sample in samples) / n
    variances = (sizes / n) ** 2 * np.array([sample.var(ddof=1) for sample in samples]) / sizes
    half, total = 0.0, variances.sum()
    if any(np.ptp(sample) for sample in samples):
        freedom = total**2 / (variances**2 / (sizes - 1)).sum()
        law = needed("statistics need", "scipy.stats", "statistics").t
        half = float(law.ppf((1 + confidence) / 2, freedom) * np.sqrt(total))
    else:  # without the rounding of a sum
        mean = sum(len(sample) * float(sample[0]) for sample in samples) / n
    return Interval(mean=mean, low=mean - half, high=mean + half, confidence=confidence, n=n)


def sample_of(name: str, values: ArrayLike, least: int = 2) -> Array:
    """Returns a flat list of at least `least` finite numbers as an array; others are refused by a `ValueError`."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a flat list of numbers, got shape {array.shape}; pass one number per unit.")
    if len(array) < least:
        raise ValueError(
            f"{name} must have at least {least} value{'s' * (least > 1)}, got {len(array)}; measure more units."
        )
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(
            f"{name} must be finite numbers, got {array[where]} at index {where}; omit the unit or correct its score."
        )
    return array


def _differences(a: ArrayLike, b: ArrayLike) -> Array:
    first, second = sample_of("a", a), sample_of("b", b)
    if len(first) != len(second):
        raise ValueError(
            f"a and b must be paired, got {len(first)} and {len(second)} values; pass one of each per unit."
        )
    return first - second
