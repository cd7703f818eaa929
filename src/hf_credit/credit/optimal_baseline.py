"""The variance of a policy gradient estimate, and the constant baseline that minimises it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def gradient_variance(
    scores: Float[Tensor, "outcomes parameters"],
    credits: Float[Tensor, " outcomes"],
    probabilities: Float[Tensor, " outcomes"],
) -> float:
    """The variance of a policy gradient estimate from one sample, summed over parameters (CCPO, Theorem 5.3).

        Var(g A) = E[|g|^2 A^2] - |E[g A]|^2,    g = grad log pi(a)

    Credits may be returns, returns minus a baseline, or contributions: the paper compares Var(g R) with Var(g Delta).

    Args:
        scores: g of each possible outcome, or of each sampled one.
        credits: A of each, in the unit of the reward.
        probabilities: of each, at least 0, with sum 1; 1/n for n samples.

    Returns:
        At least 0, except for rounding errors, in the unit of g A squared.

    Raises:
        ValueError: the probabilities do not sum to 1, or one is negative.
    """
    _check_probabilities(probabilities)
    products = scores * credits[:, None]
    mean = (probabilities[:, None] * products).sum(dim=0)
    return float((probabilities * products.square().sum(dim=1)).sum() - mean.square().sum())


def optimal_baseline(
    scores: Float[Tensor, "outcomes parameters"],
    returns: Float[Tensor, " outcomes"],
    probabilities: Float[Tensor, " outcomes"],
) -> float:
    """The constant baseline with the least variance of the gradient estimate (CCPO, eqs. 9 and 25).

        b = E[|g|^2 R] / E[|g|^2],    Var(g (R - c)) - Var(g (R - b)) = E[|g|^2] (c - b)^2    (eq. 26)

    It is the best constant for a prompt. A baseline that depends on the teammates' replies, such as the outcome of a
    vote without the agent, is not constant and can be better.

    Args:
        scores, probabilities: as in `gradient_variance`.
        returns: R of each outcome.

    Returns:
        Within the range of returns.

    Raises:
        ValueError: as `gradient_variance`, or every score is 0, so that all baselines are equal.
    """
    _check_probabilities(probabilities)
    weights = probabilities * scores.square().sum(dim=1)
    if not weights.sum() > 0:
        raise ValueError("scores must not all be 0, got only zeros; leave out a policy without gradient.")
    return float((weights * returns).sum() / weights.sum())


def _check_probabilities(probabilities: Float[Tensor, " outcomes"]) -> None:
    total = float(probabilities.sum())
    if (probabilities < 0).any() or abs(total - 1) > 1e-4:
        raise ValueError(
            f"probabilities must be at least 0 and sum to 1, got a minimum of {float(probabilities.min())} and a sum "
            f"of {total}; divide them by their sum."
        )
