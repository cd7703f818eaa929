"""What `context_variance.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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


@dataclass(frozen=True, kw_only=True)
class ContextVariance:
    """The variance of credits, in the unit of the credit squared.

    Attributes:
        within: the mean over buckets of the variance of their credits; NaN without a bucket to measure.
        between: the variance over buckets of the mean of their credits; NaN likewise.
        by_bucket: the variance of each bucket; NaN of one with fewer than two candidates.
        buckets: how many buckets were measured.
        alone: how many were left out since they hold fewer than two candidates.
    """

    within: float
    between: float
    by_bucket: tuple[float, ...]
    buckets: int
    alone: int


def context_variance(credits: Sequence[Sequence[float]]) -> ContextVariance:
    """The variance of credits inside contexts, beside that of their means from context to context.

    With J_b candidates in bucket b,

        within = mean_b (1/J_b) sum_j (A[b, j] - mean_j A[b, j])^2,    between = var_b (mean_j A[b, j])

    both of the population. The paper names the quantity (section 4.2, figure 4) and gives no formula; this is ours. It
    splits eq. 22: `between` is what is left of the context's own shift m(h), which a baseline is there to take away,
    and `within` holds the effect of the decision and the noise of its replays. A baseline that all candidates of a
    bucket share changes nothing in `within`, and leave-one-out multiplies it by (J / (J - 1))^2; so of the same
    returns the estimators differ by no more than that factor, and what the paper compares are policies. Credit that
    ranks well and varies little is better than credit that varies little: equal credits have a variance of 0.

    Args:
        credits: of each bucket, the credit of each candidate, finite. For the variance of returns, pass mean returns.

    Raises:
        ValueError: a number is not finite, or a bucket is no flat list.
    """
    values = [flat_numbers("credits", own) for own in credits]
    by_bucket = tuple(float(own.var()) if len(own) > 1 else math.nan for own in values)
    compared = [own for own in values if len(own) > 1]
    means = np.asarray([own.mean() for own in compared])
    return ContextVariance(
        within=float(np.mean([own.var() for own in compared])) if compared else math.nan,
        between=float(means.var()) if compared else math.nan,
        by_bucket=by_bucket,
        buckets=len(compared),
        alone=len(values) - len(compared),
    )
