"""What `pccc_fidelity.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


_TIE = 1e-12
"""Values this close, as a share of the largest, are one value whose last bits a sum's order has decided."""


def rank_correlation(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """Spearman's rank correlation, in which what differs by rounding alone is equal; NaN where either is constant.

    Args:
        first, second: numbers of the same things.
    """
    one, other = (_ties(np.asarray(values, dtype=np.float64)) for values in (first, second))
    return _spearman(one, other) if np.ptp(one) and np.ptp(other) else math.nan


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


@dataclass(frozen=True, kw_only=True)
class PCCCFidelity:
    """Estimated against exact contributions.

    Attributes:
        rank_correlation: Spearman's, in [-1, 1]; NaN where either is the same for all steps.
        squared_error: the mean, in squared units of the outcome.
        bias: the mean of the differences.
        sign_agreement: of the steps whose exact contribution is not 0, the share whose estimate has its sign; NaN
            where there is none.
        n: how many steps there were.
    """

    rank_correlation: float
    squared_error: float
    bias: float
    sign_agreement: float
    n: int


def pccc_fidelity(estimates: Sequence[float], exact: Sequence[float]) -> PCCCFidelity:
    """Compares estimates of what steps contributed with what they did contribute.

    Args:
        estimates: of each step, such as `hf_credit.credit.contributions` gives them.
        exact: of the same steps, by enumeration or by many continuations.

    Raises:
        ValueError: there is no step, their numbers differ, or one is not finite.
    """
    if not estimates or len(estimates) != len(exact):
        raise ValueError(
            f"fidelity needs one estimate and one exact contribution of each step, got {len(estimates)} and "
            f"{len(exact)}; leave out the steps without an estimate."
        )
    if wrong := [value for value in (*estimates, *exact) if not math.isfinite(value)]:
        raise ValueError(f"a contribution must be finite, got {wrong[0]}; leave out the steps without an estimate.")
    differences = [mine - theirs for mine, theirs in zip(estimates, exact, strict=True)]
    signed = [(mine, theirs) for mine, theirs in zip(estimates, exact, strict=True) if theirs]
    agreeing = sum(mine * theirs > 0 for mine, theirs in signed)
    return PCCCFidelity(
        rank_correlation=rank_correlation(estimates, exact),
        squared_error=math.fsum(value**2 for value in differences) / len(differences),
        bias=math.fsum(differences) / len(differences),
        sign_agreement=agreeing / len(signed) if signed else math.nan,
        n=len(differences),
    )
