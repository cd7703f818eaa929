"""Credit fidelity: the rank correlation of credit with target advantages (paper C3, Appendix I)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from hf_credit.evaluation.statistics import Array, Interval, clustered_interval, sample_of

_TIE = 1e-12
"""Values that differ by less, relative to the largest, differ only by rounding and count as tied."""


class FidelityStatus(StrEnum):
    """Whether a fidelity is defined and meaningful."""

    OK = "ok"
    CIRCULAR = "targets centred on the candidates themselves"
    """The targets of every bucket have mean 0: their baseline is the mean of the candidates, as without value-only
    actions. Leave-one-out credit is then a multiple of its target, so its fidelity is 1 for any returns."""
    CONSTANT_CREDITS = "constant credits"
    CONSTANT_TARGETS = "constant targets"
    TOO_FEW = "fewer than two candidates to compare"


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """The fidelity of credits.

    Attributes:
        rho: Spearman's correlation, in [-1, 1]; NaN if credits or targets are constant or too few.
        status: whether `rho` is defined and meaningful.
        candidates: the number of pooled pairs.
        buckets: the number of buckets that they are from.
        alone: the number of buckets that were omitted because they have fewer than two candidates.
    """

    rho: float
    status: FidelityStatus
    candidates: int
    buckets: int
    alone: int


def target_advantages(returns: Sequence[Sequence[float]], value_returns: Sequence[Sequence[float]]) -> Array:
    """Computes the target advantage of each candidate of a bucket, in the unit of the reward (paper C3, Appendix I).

        Q[j] = mean_t R[j, t],    V = sum over value-only actions of c R / sum of c,    Delta[j] = Q[j] - V

    where c is the number of replays of an action. V needs actions that serve only as the baseline: a baseline from the
    candidates would make the target (J - 1) / J times their leave-one-out credit, and fidelity 1 by construction. If
    credit and targets use the same returns, any baseline that the candidates share keeps their order. For targets with
    independent noise, pass returns of replays that the credit was not computed from.

    Args:
        returns: for each candidate, its returns, at least one, in the unit of the reward.
        value_returns: for each value-only action, drawn from the policy with repetition, its returns.

    Raises:
        ValueError: there is no value-only action, an action has no return, or a return is not finite.
    """
    if not len(value_returns):
        raise ValueError(
            "target advantages need at least 1 value-only action, got none; draw further actions only for the "
            "baseline."
        )
    q = [_pooled("a candidate", [own]) for own in returns]
    return np.asarray(q, dtype=np.float64) - _pooled("a value-only action", value_returns)


def credit_fidelity(credits: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]) -> Fidelity:
    """Computes Spearman's rank correlation of credits and target advantages over buckets (paper C3, Appendix I).

    The pairs (A_j, Delta_j) of all buckets form one pool with equal weights; tied values get the mean of their ranks.
    A bucket with one candidate compares nothing, and its leave-one-out credit is always 0: it is omitted and counted
    in `alone`.

    Args:
        credits: for each bucket, the credit of each candidate, finite, in any unit.
        targets: for each bucket, the target advantage of each candidate, from `target_advantages` or exact.

    Returns:
        The correlation, its status and the numbers of pairs and buckets. The correlation is NaN with fewer than two
        pairs, or if all credits or all targets are equal. If the targets of each bucket have mean 0, it is defined but
        its status is `CIRCULAR`.

    Raises:
        ValueError: the shapes differ, or a number is not finite.
    """
    pairs, alone = _pairs(credits, targets)
    counted = {"candidates": sum(len(a) for a, _ in pairs), "buckets": len(pairs), "alone": alone}
    if not pairs:
        return Fidelity(rho=math.nan, status=FidelityStatus.TOO_FEW, **counted)
    assigned, target = (_ties(np.concatenate([pair[side] for pair in pairs])) for side in (0, 1))
    for values, status in ((assigned, FidelityStatus.CONSTANT_CREDITS), (target, FidelityStatus.CONSTANT_TARGETS)):
        if not np.ptp(values):
            return Fidelity(rho=math.nan, status=status, **counted)
    circular = all(abs(own.mean()) <= 1e-9 * max(np.abs(own).max(), 1e-300) for _, own in pairs)
    status = FidelityStatus.CIRCULAR if circular else FidelityStatus.OK
    return Fidelity(rho=rank_correlation(assigned, target), status=status, **counted)


def fidelity_interval(
    credits: Sequence[Sequence[float]],
    targets: Sequence[Sequence[float]],
    confidence: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> Interval:
    """Computes the percentile bootstrap interval of `credit_fidelity` over buckets.

    Whole buckets are resampled, since the candidates of a bucket share a context and a baseline. Resamples in which
    all credits or all targets are equal have no correlation and are omitted.

    Args:
        credits, targets: as in `credit_fidelity`.
        confidence: the level of the interval, in (0, 1).
        resamples: the number of resamples, at least 1.

    Returns:
        The interval, with `n` the number of buckets. Its ends are NaN with fewer than two buckets or without a
        correlation.

    Raises:
        ValueError: as `credit_fidelity`, or an option is out of range.
    """
    pairs, _ = _pairs(credits, targets)
    clusters = [np.stack(pair, axis=1) for pair in pairs] or [np.zeros((0, 2))]
    found = clustered_interval(clusters, rank_correlations, confidence, resamples, seed)
    return replace(found, n=len(pairs))


def _pairs(
    credits: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]
) -> tuple[list[tuple[Array, Array]], int]:
    """Returns the credits and targets of each bucket with at least two candidates, and the number of other buckets."""
    if len(credits) != len(targets):
        raise ValueError(
            f"credits and targets must have the same number of buckets, got {len(credits)} and {len(targets)}; "
            "pass one list of each per bucket."
        )
    pairs = []
    for place, (own, theirs) in enumerate(zip(credits, targets, strict=True)):
        assigned, target = sample_of("credits", own, 0), sample_of("targets", theirs, 0)
        if len(assigned) != len(target):
            raise ValueError(
                f"every candidate must have a credit and a target, got {len(assigned)} and {len(target)} in bucket "
                f"{place}; pass one of each."
            )
        if len(assigned) > 1:
            pairs.append((assigned, target))
    return pairs, len(credits) - len(pairs)


def rank_correlation(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """Returns Spearman's rank correlation of paired numbers, in [-1, 1]; NaN without any or if a side is constant.

    Values that differ only by rounding are tied.
    """
    pairs = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)], axis=1)
    return float(rank_correlations(pairs, np.ones((1, len(pairs))))[0])


def rank_correlations(pairs: Array, counts: Array) -> Array:
    """Computes the `rank_correlation` of each of many resamples of pairs.

    Args:
        pairs: n x 2 numbers.
        counts: resamples x n, the number of times that each resample contains each pair.
    """
    middle = (counts.sum(axis=1, keepdims=True) + 1) / 2  # the mean of any ranks
    first, second = (_ranks(column, counts) - middle for column in pairs.T)
    products = (
        (counts * one * other).sum(axis=1) for one, other in ((first, second), (first, first), (second, second))
    )
    covariance, *variances = products
    with np.errstate(invalid="ignore"):
        return np.asarray(covariance / np.sqrt(variances[0] * variances[1]))


def _ranks(values: Array, counts: Array) -> Array:
    """Returns the rank of each value in each resample, resamples x n; tied values have the mean of their ranks."""
    if not len(values):
        return np.zeros_like(counts)
    distinct, place = np.unique(_ties(values), return_inverse=True)
    by_value = np.zeros((len(distinct), len(counts)))
    np.add.at(by_value, place, counts.T)
    return (by_value.cumsum(axis=0) - (by_value - 1) / 2)[place].T


def _ties(values: Array) -> Array:
    """Rounds values so that those that differ only by rounding are tied."""
    scale = float(np.abs(values).max())
    return np.asarray(np.round(values / scale / _TIE) if scale else values, dtype=np.float64)


def _pooled(what: str, returns: Sequence[Sequence[float]]) -> float:
    """Returns the mean over all returns, which weights each action by its number of replays."""
    for own in returns:
        if not len(own):
            raise ValueError(f"{what} must have at least 1 return, got none; omit it.")
    return float(np.concatenate([sample_of("returns", own, 0) for own in returns]).mean())
