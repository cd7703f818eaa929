"""Baselines of turns that stay unbiased when the policy decides how many turns there are.

Centring each turn's reward on the mean over the rollouts that reached it, and summing what follows, subtracts as many
means as a rollout has turns: to go on then costs the means of all turns ahead (verl, issue 7244). These two do not.
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
    """The return from a turn on, less the mean return of the other rollouts that reached this turn.

        A[i, k] = G[i, k] - mean_{j != i, alive at k} G[j, k],    G[i, k] = sum_{l >= k} discount^(l - k) r[i, l]

    One mean is subtracted whatever comes later, and it holds nothing of what rollout i decides at k. A rollout that is
    alone at a turn keeps its return there: an advantage of 0 would make its share of the gradient vanish.

    Args:
        rewards: of each turn, the last one with what the outcome adds; finite where active, in the unit of the reward;
            integers and booleans are promoted.
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
    _, place, members = torch.unique(alive, return_inverse=True, return_counts=True)
    advantages = torch.zeros_like(returns)
    advantages[active] = torch.where(members[place] > 1, leave_one_out(values, alive), values)
    return advantages.to(result_dtype(rewards))


def all_turns_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
) -> Float[Tensor, "rollouts turns"]:
    """The return from a turn on, less the others' mean reward at this and every later turn and their mean outcome.

        A[i, k] = G[i, k] - mean_{j != i} G[j, k],    G[i, k] = sum_{l >= k} r[i, l] + R[i]

    where a turn that a rollout did not reach paid 0. As many means are subtracted however long rollout i goes on. A
    rollout without others in its group keeps its return.

    Args:
        rewards: of each turn, finite where active, in the unit of the reward; integers and booleans are promoted.
        outcomes: R, what each rollout was paid at its end beyond the rewards of its turns, finite.
        active, groups: as in `alive_advantages`.

    Returns:
        In the dtype of `rewards`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: as `leave_one_out`.
    """
    active = as_mask(active, "active")
    paid = torch.where(active, rewards.double(), 0)
    returns = paid.flip(1).cumsum(1).flip(1) + outcomes.double()[:, None]
    _, place, members = torch.unique(groups, return_inverse=True, return_counts=True)
    advantages = torch.zeros_like(returns)
    for turn in range(returns.shape[1]):
        own = returns[:, turn].contiguous()
        advantages[:, turn] = torch.where(members[place] > 1, leave_one_out(own, groups), own)
    return torch.where(active, advantages, 0).to(result_dtype(rewards))
