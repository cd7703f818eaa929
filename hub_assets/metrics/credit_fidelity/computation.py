"""What `credit_fidelity.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    return Fidelity(rho=_spearman(assigned, target), status=status, **counted)


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


def _ties(values: Array) -> Array:
    """The values with rounding taken away, so that what is equal has equal ranks."""
    scale = float(np.abs(values).max())
    return np.asarray(np.round(values / scale / _TIE) if scale else values, dtype=np.float64)


def _spearman(a: Array, b: Array) -> float:
    stats = _scipy_stats()
    return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1])


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise ImportError(
            'Diagnostics need scipy, which is not installed; run pip install "hf-credit[statistics]".'
        ) from None
    return stats
