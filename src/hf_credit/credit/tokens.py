"""Credit of tokens: of their turn, their reward-to-go, standardised (REINFORCE++), and of cited steps (DRACO)."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_credit.credit.inputs import as_mask, require, result_dtype
from hf_credit.credit.shapes import Bool, Float, Int, Real, Shaped
from hf_credit.validators import finite_number


def turns_of_tokens(
    sampled: Bool[Tensor, "batch tokens"] | Real[Tensor, "batch tokens"],
) -> Int[Tensor, "batch tokens"]:
    """The turn of each token, numbered from 0 in each row, for `token_advantages`; -1 for a token that is not sampled.

    A turn is a run of sampled tokens. Two replies without a token between them are one turn.

    Args:
        sampled: whether the policy sampled a token, as in verl's `response_mask`.
    """
    sampled = as_mask(sampled, "sampled")
    first = sampled.clone()
    first[:, 1:] &= ~sampled[:, :-1]
    return torch.where(sampled, first.cumsum(dim=1) - 1, -1)


def token_advantages(
    advantages: Float[Tensor, "batch decisions"], decision_of_token: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens"]:
    """The advantage of each token: that of its decision.

        A[b, t] = A[b, k(b, t)],    0 where k(b, t) = -1

    A loss over tokens, such as that of TRL's GRPOTrainer, multiplies its ratios by it: all tokens of a decision have
    the decision's credit (paper C3, section 3.3; paper VPR, eq. 5).

    Args:
        advantages: of each decision of each row of the batch.
        decision_of_token: for each token, the index of its decision in [0, decisions); -1 for a token that the policy
            did not generate, such as padding and observations.

    Raises:
        ValueError: the numbers of rows differ, or an index is out of range.
    """
    if advantages.ndim != 2 or decision_of_token.ndim != 2 or len(advantages) != len(decision_of_token):
        raise ValueError(
            "advantages (batch, decisions) and decision_of_token (batch, tokens) must have the same rows, got "
            f"{tuple(advantages.shape)} and {tuple(decision_of_token.shape)}; index the decisions of each row."
        )
    decisions = advantages.shape[1]
    rule = f"a token's decision must be an index below {decisions}, or -1 for none"
    known = (decision_of_token >= -1) & (decision_of_token < decisions)
    require(known, decision_of_token, rule, "number the decisions of each row from 0")
    # One more column, of zeros, for tokens without a decision.
    padded = torch.cat([advantages, advantages.new_zeros(len(advantages), 1)], dim=1)
    index = torch.where(decision_of_token < 0, decisions, decision_of_token)
    return padded.gather(1, index)


def token_returns(
    outcomes: Shaped[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"], gamma: float = 1.0
) -> Float[Tensor, " tokens"]:
    """The discounted return of each token; the outcome is the reward of a rollout's last token (REINFORCE++,
    arXiv:2501.03262).

        G[i, t] = gamma^(T[i] - 1 - t) R[i]

    Only tokens of the model count: observations between them are skipped without a discount.

    Args:
        outcomes: of each rollout, in the unit of the reward; integers and booleans are promoted.
        lengths: T, the number of tokens that the model generated in each, at least 0.
        gamma: discount from one token to the next, in [0, 1].

    Returns:
        The tokens of the first rollout, then those of the second, and so on, in the dtype of `outcomes`.

    Raises:
        ValueError: `gamma` is outside [0, 1].
    """
    finite_number("gamma", gamma, 0, most=1)
    ends = lengths.cumsum(0)
    left = ends.repeat_interleave(lengths) - 1 - torch.arange(int(lengths.sum()))
    returns = outcomes.double().repeat_interleave(lengths) * torch.tensor(gamma, dtype=torch.float64) ** left
    return returns.to(result_dtype(outcomes))


def redistributed_advantages(
    advantages: Float[Tensor, " rollouts"],
    quality: Float[Tensor, "rollouts steps"],
    tokens: Real[Tensor, "rollouts steps"],
    active: Bool[Tensor, "rollouts steps"],
) -> Float[Tensor, "rollouts steps"]:
    """The advantage of each step, whose sum over tokens is that of the episode (DRACO, arXiv:2609.04094).

        a[j] = A N w[j] / (n[j] sum_k w[k]),    w[j] = Q[j] if A >= 0, else 1 - Q[j]        (eqs. 5 and 6)

    with n the tokens of a step and N their sum. If no step is cited, or all weights are 0, every step has A. A step
    without tokens has 0, and no part in the sum.

    Args:
        advantages: A of each rollout.
        quality: Q, the share of met criteria among those that cite the step, in [0, 1]; NaN if none does, and the step
            then has the mean of those cited.
        tokens: n, at least 0.
        active: whether rollout i had a step j.
    """
    active = active & (tokens > 0)
    cited = active & ~quality.isnan()
    known = torch.where(cited, quality.double(), 0)
    mean = known.sum(dim=1, keepdim=True) / cited.sum(dim=1, keepdim=True).clamp(min=1)
    quality = torch.where(cited, known, mean)
    level = advantages.double()[:, None]
    weights = torch.where(active, torch.where(level >= 0, quality, 1 - quality), 0)
    total, count = weights.sum(dim=1, keepdim=True), torch.where(active, tokens.double(), 0)
    shares = count.sum(dim=1, keepdim=True) * weights / (count * total).clamp(min=torch.finfo(torch.float64).tiny)
    uniform = (total <= 0) | ~cited.any(dim=1, keepdim=True)
    return torch.where(active, level * torch.where(uniform, 1, shares), 0)


def whitened(
    values: Shaped[Tensor, " members"],
    weights: Real[Tensor, " members"] | None = None,
    eps: float = 1e-8,
    correction: int = 1,
) -> Float[Tensor, " members"]:
    """Subtracts the mean of the values, and divides by their standard deviation.

        A[i] = (x[i] - m) / sqrt(v + eps),    v = sum_i w[i] (x[i] - m)^2 / (sum_i w[i] - correction)

    with the weighted mean m. The weight of a value is the number of tokens that share it: w tokens count as w members.

    Args:
        values: finite; integers and booleans are promoted.
        weights: at least 0; 1 each if `None`.
        eps: added to the variance, at least 0.
        correction: 1 for the sample variance, as in TRL and verl; 0 for the population variance, as in OpenRLHF.

    Returns:
        In the dtype of `values`; exactly 0 if all values of positive weight are equal.

    Raises:
        ValueError: `eps` is below 0, or a value is not finite.
    """
    finite_number("eps", eps, 0)
    require(values.isfinite(), values, "values must be finite", "leave out members without a value")
    weights = torch.ones(len(values), dtype=torch.float64) if weights is None else weights.double()
    dtype = result_dtype(values)
    counted = weights > 0
    if not counted.any():
        return torch.zeros(len(values), dtype=dtype)
    shifted = values.double() - values.double()[counted].min()  # equal values are exactly 0, and so is their deviation
    centred = shifted - (weights * shifted).sum() / weights.sum()
    variance = (weights * centred**2).sum() / (weights.sum() - correction).clamp(min=1)
    differ = bool((shifted[counted] > 0).any())
    return (centred / (variance + eps).sqrt() if differ else torch.zeros_like(centred)).to(dtype)
