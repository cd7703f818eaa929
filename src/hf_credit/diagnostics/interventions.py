"""Whether what interventions say can be trusted: proposals, continuations and estimates (paper CVT-RL, Table 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_credit.diagnostics.fidelity import rank_correlation
from hf_credit.validators import finite_number, finite_numbers


@dataclass(frozen=True, kw_only=True)
class InterventionValidity:
    """Of the proposals of a family of interventions.

    Attributes:
        proposals: how many were drawn.
        invalid: the share that failed the gate.
        out_of_distribution: the share of the valid ones whose replies are unlike what the policy says; NaN where none
            can be judged.
        judged: how many of the valid ones could be.
    """

    proposals: int
    invalid: float
    out_of_distribution: float
    judged: int


def intervention_validity(
    families: Sequence[str],
    valid: Sequence[bool],
    kinds: Sequence[str] | None = None,
    logprobs: Sequence[float | None] | None = None,
    sampled_kinds: Sequence[str] = (),
    sampled_logprobs: Sequence[float] = (),
    quantile: float = 0.05,
) -> dict[str, InterventionValidity]:
    """How often proposals are rejected before they are played out, and how often they are out of distribution.

    A proposal is out of distribution where its log-probability a token, under the policy that plays on, is below the
    5th percentile of the replies of its kind that this policy sampled itself; the paper does not define it.

    Args:
        families: of each proposal.
        valid: whether it passed the gate.
        kinds: of the action of each, such as `"read"`.
        logprobs: of each, its mean log-probability a token in nats; `None` where it was not scored.
        sampled_kinds, sampled_logprobs: the same of replies that were sampled.
        quantile: below which a log-probability is unusual, in (0, 1).

    Returns:
        By family, in the order in which they appear.

    Raises:
        ValueError: lengths differ, or the quantile is out of its range.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}; 0.05 is the 5th percentile.")
    count = len(families)
    kinds = [""] * count if kinds is None else kinds
    logprobs = [None] * count if logprobs is None else logprobs
    usual: dict[str, list[float]] = {}
    for kind, sampled in zip(sampled_kinds, sampled_logprobs, strict=True):
        usual.setdefault(kind, []).append(sampled)
    least = {kind: float(np.quantile(values, quantile)) for kind, values in usual.items()}
    passed: dict[str, list[bool]] = {}
    unusual: dict[str, list[bool]] = {}
    for family, ok, kind, logprob in zip(families, valid, kinds, logprobs, strict=True):
        passed.setdefault(family, []).append(bool(ok))
        judged = unusual.setdefault(family, [])
        if ok and logprob is not None and kind in least:
            judged.append(logprob < least[kind])
    return {
        family: InterventionValidity(
            proposals=len(own),
            invalid=1 - sum(own) / len(own),
            out_of_distribution=sum(unusual[family]) / len(unusual[family]) if unusual[family] else math.nan,
            judged=len(unusual[family]),
        )
        for family, own in passed.items()
    }


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
    ratios = finite_numbers("a ratio of hf_credit.credit.continuation_ratio", ratios, least=0)
    if not any(ratios):
        raise ValueError("a ratio must be above 0, got 0.0 for all; take the policy that played.")
    for value in probabilities:
        finite_number("the probability of being drawn", value, above=0, most=1)
    most = max(ratios)  # so that no square is out of range
    scaled = [value / most for value in ratios]
    at_floor = [value <= floor * (1 + 1e-9) for value in probabilities]
    return Overlap(
        median=float(np.quantile(ratios, 0.5)),
        p95=float(np.quantile(ratios, 0.95)),
        ratio_clipped=sum(not low <= value <= high for value in ratios) / len(ratios),
        effective=math.fsum(scaled) ** 2 / (len(scaled) * math.fsum(value**2 for value in scaled)),
        selection_median=float(np.quantile(probabilities, 0.5)) if probabilities else math.nan,
        selection_at_floor=sum(at_floor) / len(at_floor) if at_floor else math.nan,
        n=len(ratios),
    )


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
    finite_numbers("a contribution", [*estimates, *exact])
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
