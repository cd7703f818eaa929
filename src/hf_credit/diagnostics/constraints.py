"""What updates and agents must keep to: limits on costs, the trust region, honest checks (paper CVT-RL)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hf_credit.validators import finite_number, finite_numbers


@dataclass(frozen=True, kw_only=True)
class ConstraintViolation:
    """A cost and its limit.

    Attributes:
        cost: the mean over episodes, J.
        violation: how far it is above the limit, max(0, J - d).
        episodes_above: the share of episodes whose own cost is above the limit.
        n: how many episodes there were.
    """

    cost: float
    violation: float
    episodes_above: float
    n: int


def discounted_cost(costs: Sequence[float], gamma: float = 1.0) -> float:
    """The cost of an episode, sum over t of gamma^t c_t (paper CVT-RL, eq. 2).

    Args:
        costs: of its steps, in order, each at least 0.
        gamma: the discount, in [0, 1].
    """
    return sum(gamma**turn * cost for turn, cost in enumerate(costs))


def constraint_violation(costs: Sequence[float], limit: float) -> ConstraintViolation:
    """How far the mean cost of episodes is above its limit.

        J = mean over episodes of sum over t of gamma^t c_t,   violation = max(0, J - d)

    Args:
        costs: of each episode, as `discounted_cost` sums them, at least one.
        limit: d, at least 0.

    Raises:
        ValueError: there is no episode, a cost is negative or no number, or the limit is negative.
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
    """How far updates moved a policy.

    Attributes:
        mean, p99: of the divergence of an update, in nats a token.
        within: the share of updates whose divergence is at most the radius.
        n: how many updates there were.
    """

    mean: float
    p99: float
    within: float
    n: int


def kl_compliance(divergences: Sequence[float], radius: float) -> KLCompliance:
    """How often the mean divergence of an update keeps within its budget.

        within = share of updates with mean over tokens of KL(old || new) <= delta

    A bound of the projected policy is none of the policy that an optimizer's step leads to, which is why this is
    measured. The trainers log it of steps that are logged: `trust_region/kl` and, of actions, `trust_region/kl_tool`.

    Args:
        divergences: of each update, the mean over its tokens, in nats.
        radius: delta, above 0.

    Raises:
        ValueError: there is no update, or a number is out of range.
    """
    # Rounding may take a divergence of 0 a little below it.
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
    """How often a detector errs, where the truth is known.

    Attributes:
        false_positive_rate: the share of clean episodes (or steps) that it flags; NaN without any.
        false_negative_rate: the share of hacked ones that it misses; NaN without any.
        clean, hacked: how many there were.
    """

    false_positive_rate: float
    false_negative_rate: float
    clean: int
    hacked: int


@dataclass(frozen=True, kw_only=True)
class HackRate:
    """How often there was a hack.

    Attributes:
        apparent: the share that was flagged.
        corrected: what that says of the true share, given how the detector errs; in [0, 1].
        low, high: the interval of `corrected`, in [0, 1].
        n: how many there were.
    """

    apparent: float
    corrected: float
    low: float
    high: float
    n: int


def detector_errors(flagged: Sequence[bool], hacked: Sequence[bool]) -> DetectorErrors:
    """The false positive and false negative rates of a detector.

        FPR = flagged and clean / clean,   FNR = not flagged and hacked / hacked

    Args:
        flagged: what the detector says of each episode, or step.
        hacked: what is true of it.

    Raises:
        ValueError: there are not as many of both.
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
    """The share of episodes with a hack, corrected for a detector that errs (Rogan and Gladen, 1978).

        corrected = (apparent - FPR) / (1 - FPR - FNR),   clipped to [0, 1]

    and its interval is c -+ z sd, clipped, with the variance by the delta method

        sd^2 = [ a (1 - a) / m + c^2 FNR (1 - FNR) / hacked + (1 - c)^2 FPR (1 - FPR) / clean ] / (1 - FPR - FNR)^2
        a = (flagged + z^2 / 2) / m,   m = n + z^2,   c = (a - FPR) / (1 - FPR - FNR), clipped to [0, 1]

    where the error rates were measured on so many hacked and clean ones; the last two terms are 0 where they are
    known. Flags count as in the interval of Agresti and Coull (1998): without any, a plain share has no variance and
    its interval no width. The corrected share is below the apparent one where flags are mostly false.

    Args:
        flagged: what the detector says of each episode, at least one.
        false_positive_rate, false_negative_rate: of the detector, which sum to less than 1.
        clean, hacked: on how many the rates were measured; `None` where they are known.
        confidence: of the interval, in (0, 1).

    Raises:
        ValueError: there is no episode, a rate is outside [0, 1), or the detector is no better than chance.
    """
    if not flagged:
        raise ValueError("a hack rate needs at least one episode, got none; play some.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}; 0.95 is usual.")
    fpr, fnr = false_positive_rate, false_negative_rate
    if not (fpr >= 0 and fnr >= 0 and fpr + fnr < 1):
        raise ValueError(
            f"a detector's false positive and false negative rates must be at least 0 and sum to less than 1, got "
            f"{fpr} and {fnr}; one that is no better than chance says nothing."
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
