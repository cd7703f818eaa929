"""The reward-to-go of each token (REINFORCE++)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.inputs import result_dtype


def token_returns(
    outcomes: Shaped[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"], gamma: float = 1.0
) -> Float[Tensor, " tokens"]:
    """The discounted outcome from each token on, paid with a rollout's last token (REINFORCE++, arXiv:2501.03262).

        G[i, t] = gamma^(T[i] - 1 - t) R[i]

    Only tokens of the model count: neither time nor discount passes over what it was shown in between.

    Args:
        outcomes: of each rollout, in the unit of the reward; integers and booleans are promoted.
        lengths: T, how many tokens the model produced in each, at least 0.
        gamma: in [0, 1].

    Returns:
        The tokens of the first rollout, those of the second, and so on, in the dtype of `outcomes`, torch's default
        for integers and booleans.

    Raises:
        ValueError: `gamma` is outside [0, 1].
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}; 1 is usual.")
    ends = lengths.cumsum(0)
    left = ends.repeat_interleave(lengths) - 1 - torch.arange(int(lengths.sum()))
    returns = outcomes.double().repeat_interleave(lengths) * torch.tensor(gamma, dtype=torch.float64) ** left
    return returns.to(result_dtype(outcomes))
