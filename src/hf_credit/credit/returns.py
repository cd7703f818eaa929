"""Rewards along a trajectory: outcome rewards, value differences, discounted returns."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype, working_dtype
from hf_credit.validators import finite_number


def discounted_returns(
    rewards: Real[Tensor, "trajectories turns"] | Bool[Tensor, "trajectories turns"],
    active: Bool[Tensor, "trajectories turns"] | Real[Tensor, "trajectories turns"],
    discount: float,
) -> Float[Tensor, "trajectories turns"]:
    """The discounted sum of rewards from each turn to the last.

        G[i, t] = r[i, t] + discount * G[i, t + 1]

    With the paper's discount of 0 (paper VPR, Appendix F) the return is the reward.

    Args:
        rewards: the reward of each decision, NaN if unknown; inactive entries are ignored.
        active: whether trajectory i made a decision at turn t: true (or 1) or false (or 0).
        discount: in [0, 1].

    Returns:
        Returns in the dtype of `rewards`, torch's default for integers and booleans; 0 where inactive, NaN where the
        sum has an unknown reward.

    Raises:
        ValueError: `discount` is outside [0, 1], or `active` is not a mask.
    """
    finite_number("discount", discount, 0, most=1)
    active = as_mask(active, "active")
    returns = torch.where(active, rewards, 0).to(working_dtype(rewards))
    if discount > 0:
        for turn in range(returns.shape[1] - 2, -1, -1):
            returns[:, turn] += discount * returns[:, turn + 1]
    return torch.where(active, returns, 0).to(result_dtype(rewards))


def value_differences(
    values: Real[Tensor, "trajectories turns"] | Bool[Tensor, "trajectories turns"],
    outcomes: Real[Tensor, " trajectories"] | Bool[Tensor, " trajectories"],
    active: Bool[Tensor, "trajectories turns"] | Real[Tensor, "trajectories turns"],
) -> Float[Tensor, "trajectories turns"]:
    """Process rewards as differences of consecutive state values (the MC-PR baseline, paper VPR, section 3.1).

        r[i, t] = V(s[i, t + 1]) - V(s[i, t]),   with V of the final state = the outcome

    The rewards of a trajectory sum to its outcome minus the value of its first state.

    Args:
        values: the value of the state before each decision, NaN if unknown; inactive entries are ignored.
        outcomes: the terminal reward of each trajectory.
        active: whether trajectory i made a decision at turn t; a trajectory's active turns come first.

    Returns:
        Rewards in the dtype of `values`, torch's default for integers and booleans; 0 where inactive, NaN where one of
        the two values is.

    Raises:
        ValueError: `active` is not a mask.
    """
    active, dtype = as_mask(active, "active"), working_dtype(values)
    result, values, outcomes = result_dtype(values), values.to(dtype), outcomes.to(dtype)
    following = torch.cat([values[:, 1:], outcomes[:, None]], dim=1)
    later = torch.cat([active[:, 1:], torch.zeros_like(active[:, :1])], dim=1)
    following = torch.where(later, following, outcomes[:, None])
    return torch.where(active, following - values, 0).to(result)
