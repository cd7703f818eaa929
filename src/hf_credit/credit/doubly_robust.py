"""The contribution of a step, from continuations without it (paper CVT-RL, eqs. 4 to 6).

Every continuation gives an estimate of the value of its step under the policy mu. A contribution is the estimate of
the real step minus the mean of those of its replacements, corrected for the selection of steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hf_credit.credit.inputs import as_mask, require, result_dtype
from hf_credit.credit.shapes import Bool, Float, Real, Shaped
from hf_credit.validators import one_of


def continuation_ratio(
    target: Float[Tensor, "continuations tokens"],
    behaviour: Float[Tensor, "continuations tokens"],
    mask: Bool[Tensor, "continuations tokens"] | Real[Tensor, "continuations tokens"],
    low: float = 0.2,
    high: float = 5.0,
) -> Float[Tensor, " continuations"]:
    """The ratio of a continuation's probabilities, clipped after the product (paper CVT-RL, eq. 5).

        rho = clip(exp(sum_{s > t} log mu(a_s | h_s) - sum_{s > t} log pi_b(a_s | h_s)), low, high)

    The sum is over the action tokens of all decisions after the credited one, without its own tokens and without
    observations. A continuation without tokens has ratio 1. `low=0` and `high=inf` clip nothing.

    Args:
        target: log-probabilities under mu, in nats; read where `mask` is true.
        behaviour: log-probabilities of the same tokens under pi_b, the policy that played.
        mask: the action tokens of later decisions.
        low, high: the bounds, 0 <= low <= 1 <= high.

    Raises:
        ValueError: a bound is out of range, or a log-probability in the mask is not finite.
    """
    if not 0 <= low <= 1 <= high:
        raise ValueError(
            f"the bounds must hold 0 <= low <= 1 <= high, got {low} and {high}; the paper's are 0.2 and 5."
        )
    mask = as_mask(mask)
    for name, logprobs in (("target", target), ("behaviour", behaviour)):
        rule = f"log-probabilities in {name} must be finite where the mask is true"
        require(~mask | logprobs.isfinite(), logprobs, rule, "leave out tokens that the policy cannot generate")
    summed = torch.where(mask, target.double() - behaviour.double(), 0).sum(dim=1)
    return summed.exp().clamp(low, high).to(result_dtype(target))


def doubly_robust_values(
    outcomes: Shaped[Tensor, "*shape"], predicted: Float[Tensor, "*shape"], ratios: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """The value of a step under mu, from an outcome model and one continuation (paper CVT-RL, eq. 6, one side).

        V = m + rho (Y - m)

    With the exact ratio its mean is E_mu[Y | h, a] for any m. With rho = 1, as for a continuation of mu itself, it is
    Y. Contrary to Appendix A.1, a correct model does *not* make up for a wrong ratio on another policy's
    continuations: m averages over the continuations that the ratio reweights. `sequential_values` is doubly robust.

    Args:
        outcomes: Y of each continuation, in [0, 1].
        predicted: m, the model's prediction for the step, in [0, 1].
        ratios: rho, the result of `continuation_ratio`, at least 0.
    """
    _check(outcomes, ratios)
    return predicted + ratios * (outcomes.to(predicted.dtype) - predicted)


def sequential_values(
    outcomes: Shaped[Tensor, " continuations"],
    predicted: Float[Tensor, "continuations decisions"],
    predicted_after: Float[Tensor, "continuations decisions"],
    ratios: Float[Tensor, "continuations decisions"],
    mask: Bool[Tensor, "continuations decisions"] | Real[Tensor, "continuations decisions"],
) -> Float[Tensor, " continuations"]:
    """The value of a step under mu, corrected decision by decision (Jiang and Li 2016, eq. 10, undiscounted).

        V_s = v(h_s) + rho_s (V_{s+1} - q(h_s, a_s)),    V after the last decision = Y

    over the decisions after the step; Y if there are none. Doubly robust: its mean is correct if v and q are the
    values under mu, for any ratios; or if all ratios are exact, for any q whose mean under mu is v. The predictions of
    one network before and after a decision need not have this relation; their difference is then a bias.

    Args:
        outcomes: Y of each continuation, in [0, 1].
        predicted: v, the model's prediction before each decision of the continuation.
        predicted_after: q, its prediction after each decision.
        ratios: of each decision, at least 0.
        mask: of the existing decisions.
    """
    mask = as_mask(mask)
    _check(outcomes, ratios[mask])
    value = outcomes.to(predicted.dtype)
    for step in range(predicted.shape[1] - 1, -1, -1):
        corrected = predicted[:, step] + ratios[:, step] * (value - predicted_after[:, step])
        value = torch.where(mask[:, step], corrected, value)
    return value


def contributions(
    values: Shaped[Tensor, " steps"],
    replaced: Shaped[Tensor, "steps branches"],
    mask: Bool[Tensor, "steps branches"] | Real[Tensor, "steps branches"],
    inclusion: Float[Tensor, " steps"],
    selected: Bool[Tensor, " steps"] | Real[Tensor, " steps"],
    selection: str = "inverse",
    predicted: Float[Tensor, " steps"] | None = None,
) -> Float[Tensor, " steps"]:
    """The contribution of each step by one family of interventions (paper CVT-RL, eq. 6).

        inverse:    S / q * (V - mean_k V0_k)
        augmented:  m + S / q * (V - mean_k V0_k - m)
        none:       S * (V - mean_k V0_k)

    where V and V0 are results of `doubly_robust_values` or `sequential_values`, or plain outcomes, and m is a model's
    prediction of the difference. `inverse` is the paper's. `augmented` has the same mean, and less variance if m is
    good, also if the ratio is 1. `none` estimates the mean over selected steps.

    Args:
        values: V of each step; ignored if not selected.
        replaced: V0 of each continuation after a replacement.
        mask: of the existing continuations; a selected step without any has no estimate.
        inclusion: q, the selection probability of each step, in (0, 1].
        selected: S.
        selection: one of the three.
        predicted: m of every step, selected or not, for `augmented` only.

    Returns:
        In the dtype of `values`; 0 for steps that were not selected (m with `augmented`), NaN for selected steps
        without an estimate.

    Raises:
        ValueError: a probability is outside (0, 1], `selection` is unknown, or `predicted` does not go with it.
    """
    one_of("selection", selection, ("inverse", "augmented", "none"))
    if (predicted is None) == (selection == "augmented"):
        raise ValueError(
            f"predicted differences must go with selection='augmented' and with no other, got {selection!r} "
            f"{'without' if predicted is None else 'with'} them; change one of the two."
        )
    remedy = "draw with hf_credit.credit.inclusion_probabilities"
    require((inclusion > 0) & (inclusion <= 1), inclusion, "the selection probability must be in (0, 1]", remedy)
    mask, selected = as_mask(mask), as_mask(selected, "selected")
    dtype = result_dtype(values)
    mean = torch.where(mask, replaced.double(), 0).sum(dim=1) / mask.sum(dim=1)  # NaN without any
    difference = torch.where(selected, values.double() - mean, 0)
    if selection == "none":
        return difference.to(dtype)
    if predicted is None:
        return (difference / inclusion.double()).to(dtype)
    expected = predicted.double()
    residual = torch.where(selected, difference - expected, 0)
    return (expected + residual / inclusion.double()).to(dtype)


def family_mean(
    estimates: Float[Tensor, "steps families"], weights: Real[Tensor, " families"]
) -> Float[Tensor, " steps"]:
    """The weighted mean over the families that have an estimate (paper CVT-RL, section 3.2).

        sum_k w_k D_k / sum_k w_k,    over the k with an estimate

    The paper's weights add to 1. Here both sums omit a family that does not apply to a step, or whose proposals were
    all rejected; it does not count as 0.

    Args:
        estimates: of each family; NaN if it has none.
        weights: of the families, at least 0 and not all 0.

    Returns:
        NaN if no family has an estimate.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """
    if bool((weights < 0).any()) or not bool(weights.isfinite().all()) or not bool(weights.any()):
        raise ValueError(f"weights must be at least 0 and not all 0, got {weights.tolist()}; the paper's add to 1.")
    known = ~estimates.isnan()
    shares = weights.double() * known
    return (torch.where(known, estimates.double(), 0) @ weights.double() / shares.sum(dim=1)).to(estimates.dtype)


def _check(outcomes: Tensor, ratios: Tensor) -> None:
    require((outcomes >= 0) & (outcomes <= 1), outcomes, "outcomes must be in [0, 1]", "rescale them")
    remedy = "compute them with hf_credit.credit.continuation_ratio"
    require(ratios.isfinite() & (ratios >= 0), ratios, "ratios must be finite and at least 0", remedy)
