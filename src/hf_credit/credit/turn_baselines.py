"""Turn baselines that stay unbiased if the policy decides the number of turns.

Subtracting from each turn's reward the mean over the rollouts that reached the turn, and summing over later turns,
subtracts as many means as a rollout has turns: continuing then costs the means of all later turns (verl, issue 7244).
These two baselines avoid that.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype
from hf_credit.credit.leave_one_out import leave_one_out
from hf_credit.credit.returns import discounted_returns


def alive_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    discount: float = 1.0,
) -> Float[Tensor, "rollouts turns"]:
    """The return from a turn minus the mean return of the other rollouts that reached this turn.

        A[i, k] = G[i, k] - mean_{j != i, alive at k} G[j, k],    G[i, k] = sum_{l >= k} discount^(l - k) r[i, l]

    It subtracts one mean, whatever follows, and the mean does not depend on the decision of rollout i at k. A rollout
    that reached a turn alone keeps its return there: an advantage of 0 would remove its share of the gradient.

    Args:
        rewards: of each turn, finite where active, in the unit of the reward; the last turn's includes the outcome.
            Integers and booleans are promoted.
        active: whether rollout i had a turn k; a rollout's active turns come first.
        groups: the prompt of each rollout: any integers.
        discount: from one turn to the next, in [0, 1].

    Returns:
        In the dtype of `rewards`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: as `leave_one_out`.
    """
    active = as_mask(active, "active")
    returns = discounted_returns(rewards.double(), active, discount)
    rollouts, turns = active.nonzero(as_tuple=True)
    group = torch.unique(groups, return_inverse=True)[1]
    alive, values = group[rollouts] * rewards.shape[1] + turns, returns[active]
    advantages = torch.zeros_like(returns)
    advantages[active] = _leave_one_out_or_return(values, alive)
    return advantages.to(result_dtype(rewards))


def all_turns_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
) -> Float[Tensor, "rollouts turns"]:
    """The return from a turn minus the others' mean rewards of this and every later turn and their mean outcome.

        A[i, k] = G[i, k] - mean_{j != i} G[j, k],    G[i, k] = sum_{l >= k} r[i, l] + R[i]

    where a turn that a rollout did not reach has reward 0. The number of subtracted means does not depend on the
    length of rollout i. A rollout without others in its group keeps its return.

    Args:
        rewards: of each turn, finite where active, in the unit of the reward; integers and booleans are promoted.
        outcomes: R, the reward at the end of each rollout beside the rewards of its turns, finite.
        active, groups: as in `alive_advantages`.

    Returns:
        In the dtype of `rewards`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: as `leave_one_out`.
    """
    active = as_mask(active, "active")
    rewards_to_go = torch.where(active, rewards.double(), 0).flip(1).cumsum(1).flip(1)
    returns = rewards_to_go + outcomes.double()[:, None]
    for turn in range(returns.shape[1]):
        returns[:, turn] = _leave_one_out_or_return(returns[:, turn].contiguous(), groups)
    return torch.where(active, returns, 0).to(result_dtype(rewards))


def _leave_one_out_or_return(returns: Tensor, groups: Tensor) -> Tensor:
    """`leave_one_out`; the return of a member without others in its group."""
    _, index, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    return torch.where(sizes[index] > 1, leave_one_out(returns, groups), returns)
