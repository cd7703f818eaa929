"""Credit fidelity: how well assigned credit ranks decisions by what they were worth (paper C3, Appendix I)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from hf_credit.evaluation.statistics import Interval, clustered_interval

Array = NDArray[np.float64]

_TIE = 1e-12
"""Values this close, as a share of the largest, are one value whose last bits a sum's order has decided."""


class FidelityStatus(StrEnum):
    """What there is to say of a fidelity."""

    OK = "ok"
    CIRCULAR = "targets centred on the candidates themselves"
    """The targets of every bucket have mean 0: their baseline is the candidates' own mean, as with no value-only
    action. Leave-one-out then is a multiple of its target, and its fidelity is 1 however bad its returns are."""
    CONSTANT_CREDITS = "constant credits"
    CONSTANT_TARGETS = "constant targets"
    TOO_FEW = "fewer than two candidates to compare"


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """The fidelity of credits.

    Attributes:
        rho: Spearman's correlation, in [-1, 1]; NaN where credits or targets are constant, or too few.
        status: what a reader must know of `rho`.
        candidates: how many pairs were pooled.
        buckets: of how many buckets.
        alone: how many buckets were left out since they hold fewer than two candidates.
    """

    rho: float
    status: FidelityStatus
    candidates: int
    buckets: int
    alone: int


def target_advantages(returns: Sequence[Sequence[float]], value_returns: Sequence[Sequence[float]]) -> Array:
    """What each candidate of a bucket was worth beyond the policy's mean at its context (paper C3, Appendix I).

        Q[j] = mean_t R[j, t],    V = sum over value-only actions of c R / sum of c,    Delta[j] = Q[j] - V

    The baseline V is of actions that serve for nothing else. Taken from the candidates themselves, it would make the
    target a multiple of leave-one-out credit, (J - 1) / J of it with J candidates, and fidelity would be 1 by
    construction; so at least one value-only action is asked for. Q is of the returns that credit is made of, so that
    inside a bucket any baseline that is common to its candidates keeps their order: pass returns of replays that the
    credit has not seen for a target that is independent of its noise.

    Args:
        returns: of each candidate, its returns, at least one, in the unit of the reward.
        value_returns: of each value-only action, drawn from the policy with repetition, its returns.

    Returns:
        Delta of each candidate, in the unit of the reward.

    Raises:
        ValueError: there is no value-only action, an action has no return, or a return is not finite.
    """
    if not len(value_returns):
        raise ValueError(
            "target advantages need at least 1 value-only action, got none, which makes leave-one-out its own target; "
            "draw some more actions for the baseline alone."
        )
    q = [_pooled("a candidate", [own]) for own in returns]
    return np.asarray(q, dtype=np.float64) - _pooled("a value-only action", value_returns)


def credit_fidelity(credits: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]) -> Fidelity:
    """Spearman's rank correlation between credits and target advantages, pooled over buckets (paper C3, Appendix I).

    All pairs (A_j, Delta_j) of all buckets go into one pool, each with the same weight; tied values have the mean of
    their ranks. A bucket of one candidate says nothing about which decision was better, and its leave-one-out credit
    is 0 whatever it was worth: it is left out and counted in `alone`.

    Args:
        credits: of each bucket, the credit of each candidate, finite, in any unit.
        targets: of each bucket, the target advantage of each candidate: of `target_advantages`, or exact ones.

    Returns:
        The correlation and what it rests on. Without at least two pairs, or where all credits or all targets are
        equal, it is NaN, and `status` says which; where the targets betray that they were centred on the candidates
        themselves, it is there, and `status` says so.

    Raises:
        ValueError: the shapes differ, or a number is not finite.
    """
    pairs, alone = _pairs(credits, targets)
    counted = {"candidates": sum(len(a) for a, _ in pairs), "buckets": len(pairs), "alone": alone}
    if not pairs:
        return Fidelity(rho=math.nan, status=FidelityStatus.TOO_FEW, **counted)
    assigned, target = (_ties(np.concatenate([pair[side] for pair in pairs])) for side in (0, 1))
    for values, status in (
        (assigned, FidelityStatus.CONSTANT_CREDITS),
        (target, FidelityStatus.CONSTANT_TARGETS),
    ):
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
    """The percentile bootstrap interval of `credit_fidelity` over buckets.

    Buckets are redrawn whole, since the candidates of one share a context and a baseline. Draws in which all credits
    or all targets are equal have no correlation and are left out.

    Args:
        credits, targets: as in `credit_fidelity`.
        confidence: in (0, 1).
        resamples: how often to redraw, at least 1.
        seed: of the drawing.

    Returns:
        With `n` the number of buckets. Where there are fewer than two, or no correlation, the ends are NaN.

    Raises:
        ValueError: as `credit_fidelity`, or an option is out of range.
    """
    pairs, _ = _pairs(credits, targets)
    clusters = [np.stack(pair, axis=1) for pair in pairs] or [np.zeros((0, 2))]
    found = clustered_interval(clusters, rank_correlations, confidence, resamples, seed)
    return replace(found, n=len(pairs))


def flat_numbers(name: str, values: Sequence[float]) -> Array:
    """One bucket's numbers, checked.

    Raises:
        ValueError: they are no flat list of finite numbers.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be one flat list of numbers for each bucket, got shape {array.shape} for one; "
            "pass a list of lists."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}; leave that candidate out.")
    return array


def _pairs(
    credits: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]
) -> tuple[list[tuple[Array, Array]], int]:
    """The credits and targets of each bucket of at least two candidates, and how many others there are."""
    if len(credits) != len(targets):
        raise ValueError(
            f"credits and targets must be of the same buckets, got {len(credits)} and {len(targets)}; "
            "pass one list of each for every bucket."
        )
    pairs = []
    for place, (own, theirs) in enumerate(zip(credits, targets, strict=True)):
        assigned, target = flat_numbers("credits", own), flat_numbers("targets", theirs)
        if len(assigned) != len(target):
            raise ValueError(
                f"every candidate must have a credit and a target, got {len(assigned)} and {len(target)} in bucket "
                f"{place}; pass one of each."
            )
        if len(assigned) > 1:
            pairs.append((assigned, target))
    return pairs, len(credits) - len(pairs)


def rank_correlation(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """Spearman's rank correlation, in which numbers that differ by rounding alone are equal.

    Args:
        first, second: n numbers each.

    Returns:
        The correlation, in [-1, 1]; NaN of no numbers, or where all of one side are equal.
    """
    pairs = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)], axis=1)
    return float(rank_correlations(pairs, np.ones((1, len(pairs))))[0])


def rank_correlations(pairs: Array, counts: Array) -> Array:
    """`rank_correlation` of resamples of some pairs, all at once.

    Args:
        pairs: n x 2 numbers.
        counts: resamples x n, how often a resample has each pair.

    Returns:
        The correlation of each resample, in [-1, 1], or NaN.
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
    """The rank of each value in each resample, resamples x n; equal values have the mean of their ranks."""
    if not len(values):
        return np.zeros_like(counts)
    distinct, place = np.unique(_ties(values), return_inverse=True)
    by_value = np.zeros((len(distinct), len(counts)))
    np.add.at(by_value, place, counts.T)
    return (by_value.cumsum(axis=0) - (by_value - 1) / 2)[place].T


def _ties(values: Array) -> Array:
    """The values with rounding taken away, so that what is equal has equal ranks."""
    scale = float(np.abs(values).max())
    return np.asarray(np.round(values / scale / _TIE) if scale else values, dtype=np.float64)


def _pooled(what: str, returns: Sequence[Sequence[float]]) -> float:
    """The mean over all returns, which weights each action by its replays."""
    for own in returns:
        if not len(own):
            raise ValueError(f"{what} must have at least 1 return, got none; leave it out.")
    return float(np.concatenate([flat_numbers("returns", own) for own in returns]).mean())
