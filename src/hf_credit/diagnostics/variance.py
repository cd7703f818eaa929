"""The variance of credit within contexts and between contexts (paper C3, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_credit.evaluation.statistics import sample_of


@dataclass(frozen=True, kw_only=True)
class ContextVariance:
    """The variance of credits, in squared units of the credit.

    Attributes:
        within: the mean over buckets of the variance of their credits; NaN without a measured bucket.
        between: the variance over buckets of the mean of their credits; NaN without a measured bucket.
        by_bucket: the variance of each bucket; NaN with fewer than two candidates.
        buckets: the number of measured buckets.
        alone: the number of buckets that were omitted because they have fewer than two candidates.
    """

    within: float
    between: float
    by_bucket: tuple[float, ...]
    buckets: int
    alone: int


def context_variance(credits: Sequence[Sequence[float]]) -> ContextVariance:
    """Computes the variance of credits within contexts, and the variance of their means between contexts.

    With J_b candidates in bucket b,

        within = mean_b (1/J_b) sum_j (A[b, j] - mean_j A[b, j])^2,    between = var_b (mean_j A[b, j])

    both population variances. The paper names the quantity (section 4.2, figure 4) without a formula; this one is the
    library's. It splits eq. 22: `between` is the part of the context's shift m(h) that the baseline does not remove,
    `within` contains the effect of the decision and the noise of its replays. A baseline that the candidates of a
    bucket share does not change `within`, and leave-one-out multiplies it by (J / (J - 1))^2. For the same returns,
    estimators differ only by this factor, so the paper compares policies. Low variance alone does not make credit
    good: equal credits have variance 0.

    Args:
        credits: for each bucket, the credit of each candidate, finite. For the variance of returns, pass mean returns.

    Raises:
        ValueError: a number is not finite, or the credits of a bucket are not a flat list.
    """
    values = [sample_of("credits", own, 0) for own in credits]
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
