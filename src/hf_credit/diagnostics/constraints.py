"""Measures of constraints: limits on costs, the trust region, hacked checks (paper CVT-RL)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hf_credit.validators import finite_number, finite_numbers


@dataclass(frozen=True, kw_only=True)
class ConstraintViolation:
    """The mean cost of episodes and its excess over a limit.

    Attributes:
        cost: J, the mean over episodes.
        violation: max(0, J - d) for the limit d.
        episodes_above: the share of episodes with a cost above the limit.
        n: the number of episodes.
    """

    cost: float
    violation: float
    episodes_above: float
    n: int


def constraint_violation(costs: Sequence[float], limit: float) -> ConstraintViolation:
    """Computes the mean cost of episodes and its excess over a limit (paper CVT-RL, eq. 2).

        J = mean over episodes of sum over t of gamma^t c_t,   violation = max(0, J - d)

    Args:
        costs: the cost of each episode, the inner sum, at least one.
        limit: d, at least 0.

    Raises:
        ValueError: there is no episode, or a cost or the limit is negative or not finite.
    """
    costs, limit = finite_numbers("a cost", costs, 0), finite_number("a limit", limit, 0)
    mean = math.fsum(costs) / len(costs)
    return ConstraintViolation(
        cost=mean,
        violation=max(0.0, mean - limit),
        episodes_above=sum(cost > limit for cost in costs) / len(costs),
        n=len(costs),
    )


@dataclass(frozen=True, kw_only=True)
class KLCompliance:
    """The divergence of updates.

    Attributes:
        mean, p99: mean and 99th percentile over updates of the divergence, in nats per token.
        within: the share of updates with a divergence of at most the radius.
        n: the number of updates.
    """

    mean: float
    p99: float
    within: float
    n: int


def kl_compliance(divergences: Sequence[float], radius: float) -> KLCompliance:
    """Computes the share of updates with a mean divergence within the trust region.

        within = share of updates with mean over tokens of KL(old || new) <= delta

    The projection bounds the projected policy, but not the policy after the optimizer step, so this must be measured.
    The trainers log the divergence at each logged step: `trust_region/kl`, and `trust_region/kl_tool` for actions.

    Args:
        divergences: for each update, the mean over its tokens, in nats.
        radius: delta, above 0.

    Raises:
        ValueError: there is no update, or a number is out of range.
    """
    # Rounding can make a divergence of 0 slightly negative.
    divergences = finite_numbers("a divergence KL(old || new)", divergences, least=-1e-6)
    radius = finite_number("the radius", radius, above=0)
    return KLCompliance(
        mean=math.fsum(divergences) / len(divergences),
        p99=float(np.quantile(divergences, 0.99)),
        within=sum(value <= radius for value in divergences) / len(divergences),
        n=len(divergences),
    )


@dataclass(frozen=True, kw_only=True)
class DetectorErrors:
    """The error rates of a detector.

    Attributes:
        false_positive_rate: the share of clean episodes (or steps) that it flags; NaN without clean ones.
        false_negative_rate: the share of hacked episodes (or steps) that it misses; NaN without hacked ones.
        clean, hacked: the numbers of clean and hacked episodes (or steps).
    """

    false_positive_rate: float
    false_negative_rate: float
    clean: int
    hacked: int


@dataclass(frozen=True, kw_only=True)
class HackRate:
    """The share of episodes with a hack.

    Attributes:
        apparent: the share of flagged episodes.
        corrected: the estimate of the true share, corrected for the detector's errors; in [0, 1].
        low, high: the confidence interval of `corrected`, in [0, 1].
        n: the number of episodes.
    """

    apparent: float
    corrected: float
    low: float
    high: float
    n: int


def detector_errors(flagged: Sequence[bool], hacked: Sequence[bool]) -> DetectorErrors:
    """Computes the false positive and false negative rates of a detector.

        FPR = flagged and clean / clean,   FNR = not flagged and hacked / hacked

    Args:
        flagged: for each episode (or step), whether the detector flags it.
        hacked: for each episode (or step), whether it has a hack.

    Raises:
        ValueError: the lengths differ.
    """
    pairs = list(zip(flagged, hacked, strict=True))
    clean = [flag for flag, was in pairs if not was]
    bad = [flag for flag, was in pairs if was]
    return DetectorErrors(
        false_positive_rate=sum(clean) / len(clean) if clean else math.nan,
        false_negative_rate=1 - sum(bad) / len(bad) if bad else math.nan,
        clean=len(clean),
        hacked=len(bad),
    )


def hack_rate(
    flagged: Sequence[bool],
    false_positive_rate: float = 0.0,
    false_negative_rate: float = 0.0,
    clean: int | None = None,
    hacked: int | None = None,
    confidence: float = 0.95,
) -> HackRate:
    """Estimates the share of episodes with a hack, corrected for the detector's errors (Rogan and Gladen, 1978).

        corrected = (apparent - FPR) / (1 - FPR - FNR),   clipped to [0, 1]

    The interval is c -+ z sd, clipped, with the variance by the delta method

        sd^2 = [ a (1 - a) / m + c^2 FNR (1 - FNR) / hacked + (1 - c)^2 FPR (1 - FPR) / clean ] / (1 - FPR - FNR)^2
        a = (flagged + z^2 / 2) / m,   m = n + z^2,   c = (a - FPR) / (1 - FPR - FNR), clipped to [0, 1]

    where `hacked` and `clean` are the numbers of episodes on which the error rates were measured; the last two terms
    are 0 if the rates are known. Flags count as in the interval of Agresti and Coull (1998), since the variance of a
    plain share without flags, and so the width of its interval, is 0.

    Args:
        flagged: for each episode, whether the detector flags it; at least one episode.
        false_positive_rate, false_negative_rate: the error rates of the detector; their sum is below 1.
        clean, hacked: the numbers of episodes on which they were measured; `None` if they are known.
        confidence: the level of the interval, in (0, 1).

    Raises:
        ValueError: there is no episode, a rate is outside [0, 1), or the detector is no better than chance.
    """
    if not flagged:
        raise ValueError("a hack rate needs at least one episode, got none; play episodes.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}; 0.95 is usual.")
    fpr, fnr = false_positive_rate, false_negative_rate
    if not (fpr >= 0 and fnr >= 0 and fpr + fnr < 1):
        raise ValueError(
            f"a detector's false positive and false negative rates must be at least 0 and sum to less than 1, got "
            f"{fpr} and {fnr}; use a detector that is better than chance."
        )
    count, z = sum(map(bool, flagged)), NormalDist().inv_cdf((1 + confidence) / 2)

    def corrected(share: float) -> float:
        return min(max((share - fpr) / (1 - fpr - fnr), 0.0), 1.0)

    several = len(flagged) + z**2
    middle = (count + z**2 / 2) / several
    centre = corrected(middle)
    variance = middle * (1 - middle) / several
    variance += centre**2 * fnr * (1 - fnr) / hacked if hacked else 0.0
    variance += (1 - centre) ** 2 * fpr * (1 - fpr) / clean if clean else 0.0
    reach = z * math.sqrt(variance) / (1 - fpr - fnr)
    return HackRate(
        apparent=count / len(flagged),
        corrected=corrected(count / len(flagged)),
        low=max(centre - reach, 0.0),
        high=min(centre + reach, 1.0),
        n=len(flagged),
    )
