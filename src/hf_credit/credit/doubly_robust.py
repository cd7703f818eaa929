"""What a step contributed, from continuations without it (paper CVT-RL, eqs. 4 and 6).

Every continuation gives an estimate of what it is worth to go on from its step with the policy mu; a contribution is
the estimate of the real step less the mean of those of its replacements, corrected for how steps were selected.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype

SELECTIONS = ("inverse", "augmented", "none")


def doubly_robust_values(
    outcomes: Shaped[Tensor, "*shape"], predicted: Float[Tensor, "*shape"], ratios: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """What a step is worth under mu, by an outcome model and one continuation (paper CVT-RL, eq. 6, one side).

        V = m + rho (Y - m)

    With the exact ratio its mean is E_mu[Y | h, a] whatever m says. With rho = 1, as for a continuation of mu itself,
    it is Y. It is *not* right for a right model and a wrong ratio on another policy's continuations, as Appendix A.1
    has it: m averages over the continuations that the ratio weighs anew. `sequential_values` is.

    Args:
        outcomes: Y, what each continuation came to, in [0, 1].
        predicted: m, what the model said of the step before the outcome was known, in [0, 1].
        ratios: rho, as `continuation_ratio` gives it, at least 0.
    """
    _refuse_outside(outcomes, "outcomes")
    _refuse_ratios(ratios)
    return predicted + ratios * (outcomes.to(predicted.dtype) - predicted)


def sequential_values(
    outcomes: Shaped[Tensor, " continuations"],
    predicted: Float[Tensor, "continuations decisions"],
    predicted_after: Float[Tensor, "continuations decisions"],
    ratios: Float[Tensor, "continuations decisions"],
    mask: Bool[Tensor, "continuations decisions"] | Real[Tensor, "continuations decisions"],
) -> Float[Tensor, " continuations"]:
    """What a step is worth under mu, corrected decision by decision (Jiang and Li 2016, eq. 10, undiscounted).

        V_s = v(h_s) + rho_s (V_{s+1} - q(h_s, a_s)),    V after the last decision = Y

    over the decisions after the step; without any it is Y. Doubly robust: right in the mean if v and q are the values
    under mu, whatever the ratios; or if all ratios are exact, whatever q, as long as v is the mean of q over what mu
    may do. Two readings of one network do not agree like that by themselves: by as much as they differ, so does this.

    Args:
        outcomes: Y, what each continuation came to, in [0, 1].
        predicted: v, what the model said before each decision of the continuation.
        predicted_after: q, what it said of each decision that was then made.
        ratios: of each decision alone, at least 0.
        mask: which decisions there are.
    """
    _refuse_outside(outcomes, "outcomes")
    mask = as_mask(mask)
    _refuse_ratios(ratios[mask])
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

    where V and V0 come from `doubly_robust_values`, `sequential_values`, or are plain outcomes, and m is what a model
    predicts the difference to be. `inverse` is the paper's; `augmented` has the same mean and less variance the better
    m is, and there the model matters also where the ratio is 1. `none` estimates the mean over selected steps.

    Args:
        values: V, of each step as it was taken; read where it was selected.
        replaced: V0, of each continuation after a replacement.
        mask: which of these there are; a selected step without any has no estimate.
        inclusion: q, the probability with which each step was selected, in (0, 1].
        selected: S.
        selection: which of the three.
        predicted: m, for `augmented`: of every step, selected or not.

    Returns:
        In the dtype of `values`; 0 for steps that were not selected (their m with `augmented`), NaN for selected ones
        without an estimate.

    Raises:
        ValueError: a probability is outside (0, 1], `selection` is unknown, or `predicted` is missing or not wanted.
    """
    if selection not in SELECTIONS:
        raise ValueError(
            f"selection must be one of {', '.join(SELECTIONS)}, got {selection!r}; the paper's is inverse."
        )
    if (predicted is None) == (selection == "augmented"):
        raise ValueError(
            f"predicted differences go with selection='augmented' and with no other, got {selection!r} "
            f"{'without' if predicted is None else 'with'} them; change one of the two."
        )
    outside = ~((inclusion > 0) & (inclusion <= 1))
    if bool(outside.any()):
        raise ValueError(
            f"the probability of being selected must be in (0, 1], got {inclusion[outside][0].item()}; draw with "
            "hf_credit.credit.inclusion_probabilities."
        )
    mask, selected = as_mask(mask), as_mask(selected, "selected")
    dtype = result_dtype(values)
    branches = mask.sum(dim=1)
    mean = torch.where(mask, replaced.double(), 0).sum(dim=1) / branches  # NaN without any
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

    The paper sums with weights that add to 1; a family that does not apply to a step, or whose proposals were all
    refused, is left out of both sums rather than counted as 0.

    Args:
        estimates: of each family; NaN where it has none.
        weights: of the families, at least 0 and not all 0.

    Returns:
        NaN where no family has an estimate.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """
    if bool((weights < 0).any()) or not bool(weights.isfinite().all()) or not bool(weights.any()):
        raise ValueError(f"weights must be at least 0 and not all 0, got {weights.tolist()}; the paper's add to 1.")
    there = ~estimates.isnan()
    shares = weights.double() * there
    return (torch.where(there, estimates.double(), 0) @ weights.double() / shares.sum(dim=1)).to(estimates.dtype)


def _refuse_outside(numbers: Tensor, name: str) -> None:
    outside = ~((numbers >= 0) & (numbers <= 1))
    if bool(outside.any()):
        raise ValueError(f"{name} must be in [0, 1], got {numbers[outside][0].item()}; rescale them.")


def _refuse_ratios(ratios: Tensor) -> None:
    wrong = ~(ratios.isfinite() & (ratios >= 0))
    if bool(wrong.any()):
        raise ValueError(
            f"ratios must be finite and at least 0, got {ratios[wrong][0].item()}; take them from "
            "hf_credit.credit.continuation_ratio."
        )
