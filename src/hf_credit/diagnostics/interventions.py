"""Reliability of interventions: validity of proposals, overlap of policies, errors of estimates (CVT-RL, Table 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_credit.diagnostics.fidelity import rank_correlation
from hf_credit.validators import finite_number, finite_numbers


@dataclass(frozen=True, kw_only=True)
class InterventionValidity:
    """The validity of the proposals of a family of interventions.

    Attributes:
        proposals: the number of proposals.
        invalid: the share of proposals that the gate rejected.
        out_of_distribution: the share of judged proposals with replies that are unlikely under the policy; NaN without
            a judged proposal.
        judged: the number of valid proposals that could be judged.
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
    """Computes the shares of invalid and of out-of-distribution proposals, by family in order of appearance.

    A proposal is out of distribution if its mean log-probability per token, under the policy that continues, is below
    the `quantile` of the replies of the same kind that this policy sampled. The paper does not define the term.

    Args:
        families: the family of each proposal.
        valid: whether each proposal passed the gate.
        kinds: the kind of action of each proposal, such as `"read"`.
        logprobs: the mean log-probability per token of each proposal, in nats; `None` if it was not scored.
        sampled_kinds, sampled_logprobs: the same for sampled replies.
        quantile: in (0, 1).

    Raises:
        ValueError: lengths differ, a number is not finite, or the quantile is out of range.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}; 0.05 is the 5th percentile.")
    count = len(families)
    kinds = [""] * count if kinds is None else kinds
    logprobs = [None] * count if logprobs is None else logprobs
    usual: dict[str, list[float]] = {}
    for kind, sampled in zip(sampled_kinds, sampled_logprobs, strict=True):
        usual.setdefault(kind, []).append(sampled)
    if not all(map(math.isfinite, (*sampled_logprobs, *(one for one in logprobs if one is not None)))):
        raise ValueError("log-probabilities must be finite, got one that is not; leave it out.")
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
    """Importance ratios of continuations, and the probabilities with which steps were drawn.

    Attributes:
        median, p95: median and 95th percentile of the unclipped ratios.
        ratio_clipped: the share of ratios outside the clip range.
        effective: the effective sample size as a share of the sample, (sum rho)^2 / (n sum rho^2), in (0, 1].
        selection_median: the median of the probabilities; NaN without any.
        selection_at_floor: the share of probabilities at the floor; NaN without any.
        n: the number of ratios.
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
    """Measures the overlap of a policy with the policy that played continuations (paper CVT-RL, eq. 5).

    Args:
        ratios: rho of eq. 5 before clipping, each finite and at least 0, at least one above 0.
        probabilities: the probabilities with which steps were drawn, each in (0, 1].
        low, high: the clip range of ratios.
        floor: the minimum of the probabilities.

    Raises:
        ValueError: there is no ratio, or a number is out of range.
    """
    ratios = finite_numbers("a ratio of hf_credit.credit.continuation_ratio", ratios, least=0)
    if not any(ratios):
        raise ValueError("a ratio must be above 0, got 0.0 for all; use the policy that played the continuations.")
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
    """The errors of estimated contributions.

    Attributes:
        rank_correlation: Spearman's correlation, in [-1, 1]; NaN if either side is constant.
        squared_error: the mean squared error, in squared units of the outcome.
        bias: the mean of estimate minus exact contribution.
        sign_agreement: the share of estimates with the right sign, over steps with an exact contribution other than 0;
            NaN without one.
        n: the number of steps.
    """

    rank_correlation: float
    squared_error: float
    bias: float
    sign_agreement: float
    n: int


def pccc_fidelity(estimates: Sequence[float], exact: Sequence[float]) -> PCCCFidelity:
    """Compares estimated contributions of steps with exact ones.

    Args:
        estimates: the estimate for each step, such as from `hf_credit.credit.contributions`.
        exact: the contribution of each step, by enumeration or from many continuations.

    Raises:
        ValueError: there is no step, lengths differ, or a number is not finite.
    """
    if not estimates or len(estimates) != len(exact):
        raise ValueError(
            f"fidelity needs one estimate and one exact contribution per step, got {len(estimates)} and {len(exact)}; "
            "omit steps without an estimate."
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
