"""The reward-to-go of each token (REINFORCE++)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.inputs import result_dtype
from hf_credit.validators import finite_number


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
        The tokens of the first rollout, then those of the second, and so on, in the dtype of `outcomes`, torch's
        default for integers and booleans.

    Raises:
        ValueError: `gamma` is outside [0, 1].
    """
    finite_number("gamma", gamma, 0, most=1)
    ends = lengths.cumsum(0)
    left = ends.repeat_interleave(lengths) - 1 - torch.arange(int(lengths.sum()))
    returns = outcomes.double().repeat_interleave(lengths) * torch.tensor(gamma, dtype=torch.float64) ** left
    return returns.to(result_dtype(outcomes))
