"""What `overlap.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Ratios of continuations, and the probabilities with which steps were drawn.

    Attributes:
        median, p95: of the ratios, unclipped.
        ratio_clipped: the share of ratios outside the clip.
        effective: the effective sample size as a share of the sample, (sum rho)^2 / (n sum rho^2), in (0, 1].
        selection_median: of the probabilities; NaN where none are given.
        selection_at_floor: the share of probabilities at the floor; likewise.
        n: how many ratios there were.
    """

    median: float
    p95: float
    ratio_clipped: float
    effective: float
    selection_median: float
    selection_at_floor: float
    n: int


def overlap(
    ratios: Sequence[float],
    probabilities: Sequence[float] = (),
    low: float = 0.2,
    high: float = 5.0,
    floor: float = 0.15,
) -> Overlap:
    """How far a policy is from the one that played, as far as continuations and drawn steps tell.

    Args:
        ratios: rho of eq. 5 before it is clipped, each finite and at least 0, at least one above 0.
        probabilities: with which steps were drawn, each in (0, 1].
        low, high: the clip.
        floor: of the probabilities.

    Raises:
        ValueError: there is no ratio, or a number is out of range.
    """
    if not ratios:
        raise ValueError("overlap is judged by at least one ratio, got none; play continuations.")
    wrong = [value for value in ratios if not (math.isfinite(value) and value >= 0)]
    if wrong or not any(ratios):
        raise ValueError(
            f"ratios must be finite, at least 0 and not all 0, got {wrong[0] if wrong else 0.0}; take them from "
            "hf_credit.credit.continuation_ratio."
        )
    if outside := [value for value in probabilities if not 0 < value <= 1]:
        raise ValueError(f"the probability of being drawn must be in (0, 1], got {outside[0]}; correct it.")
    most = max(ratios)  # so that no square is out of range
    scaled = [value / most for value in ratios]
    return Overlap(
        median=float(np.quantile(ratios, 0.5)),
        p95=float(np.quantile(ratios, 0.95)),
        ratio_clipped=sum(not low <= value <= high for value in ratios) / len(ratios),
        effective=math.fsum(scaled) ** 2 / (len(scaled) * math.fsum(value**2 for value in scaled)),
        selection_median=float(np.quantile(probabilities, 0.5)) if probabilities else math.nan,
        selection_at_floor=(
            sum(value <= floor * (1 + 1e-9) for value in probabilities) / len(probabilities)
            if probabilities
            else math.nan
        ),
        n=len(ratios),
    )
