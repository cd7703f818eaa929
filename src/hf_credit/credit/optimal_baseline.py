"""How much a gradient estimate varies with the credit it is made of, and the baseline that lets it vary least."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def gradient_variance(
    scores: Float[Tensor, "outcomes parameters"],
    credits: Float[Tensor, " outcomes"],
    probabilities: Float[Tensor, " outcomes"],
) -> float:
    """The variance of a policy gradient's estimate from one sample, summed over parameters (CCPO, Theorem 5.3).

        Var(g A) = E[|g|^2 A^2] - |E[g A]|^2,    g = grad log pi(a)

    Credits may be returns, returns less a baseline, or contributions: the paper compares Var(g R) with Var(g Delta).

    Args:
        scores: g of each outcome that there can be, or of each that was sampled.
        credits: A of each, in the unit of the reward.
        probabilities: of each, at least 0 and 1 in all; 1/n of n samples.

    Returns:
        At least 0 but for rounding, in the unit of g A squared.

    Raises:
        ValueError: the probabilities do not sum to 1, or one is negative.
    """
    _refuse_probabilities(probabilities)
    products = scores * credits[:, None]
    mean = (probabilities[:, None] * products).sum(dim=0)
    return float((probabilities * products.square().sum(dim=1)).sum() - mean.square().sum())


def optimal_baseline(
    scores: Float[Tensor, "outcomes parameters"],
    returns: Float[Tensor, " outcomes"],
    probabilities: Float[Tensor, " outcomes"],
) -> float:
    """The constant whose subtraction from returns leaves a gradient estimate the least variance (CCPO, eqs. 9 and 25).

        b = E[|g|^2 R] / E[|g|^2],    Var(g (R - c)) - Var(g (R - b)) = E[|g|^2] (c - b)^2    (eq. 26)

    It is best among constants of a prompt. What shares the teammates' replies, as the outcome of a vote without the
    agent does, is none, and can do better.

    Args:
        scores, probabilities: as in `gradient_variance`.
        returns: R of each outcome.

    Returns:
        Within the range of returns.

    Raises:
        ValueError: as `gradient_variance`, or every score is 0, so that any baseline will do.
    """
    _refuse_probabilities(probabilities)
    weights = probabilities * scores.square().sum(dim=1)
    if not weights.sum() > 0:
        raise ValueError("the scores of a policy that can learn must not all be 0, got only zeros; leave it out.")
    return float((weights * returns).sum() / weights.sum())


def _refuse_probabilities(probabilities: Float[Tensor, " outcomes"]) -> None:
    total = float(probabilities.sum())
    if (probabilities < 0).any() or abs(total - 1) > 1e-4:
        raise ValueError(
            f"probabilities must be at least 0 and sum to 1, got {float(probabilities.min())} at least and a sum of "
            f"{total}; divide them by their sum."
        )
