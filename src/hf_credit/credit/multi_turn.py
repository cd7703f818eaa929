"""Turn rewards and outcomes, each compared within the group and summed along the turns (MT-GRPO)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from hf_credit.credit.group_advantages import group_advantages
from hf_credit.credit.inputs import as_mask, result_dtype
from hf_credit.validators import finite_number


def multi_turn_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    turn_weight: float = 1.0,
    gamma: float = 1.0,
    all_turns: bool = False,
    eps: float = 1e-4,
) -> Float[Tensor, "rollouts turns"]:
    """Outcome advantages for all turns, plus turn advantages for some of them (MT-GRPO, arXiv:2505.11821).

    Let A_O and A_T[l] be the group z-scores (`group_advantages`) of the outcomes and of the rewards of turn l, and K
    the number of turns of a rollout. The first turn has A_O + turn_weight A_T[1], later turns have A_O, and the only
    turn of a rollout with K = 1 has the z-score of turn_weight r[1] + R. With `all_turns`,

        A[k] = turn_weight sum_{l=k}^{K-1} gamma^(l-k) A_T[l] + gamma^(K-k) A_O

    where the outcome is the reward of the last turn. In the paper all rollouts of a group have the same K. If they
    differ, turn l is compared among the rollouts that reached it: this baseline depends on which rollouts stopped
    before, so it is biased if the policy decides when to stop (`alive_advantages` is unbiased).

    Args:
        rewards: of each turn, finite where active, or NaN if unknown; integers and booleans are promoted.
        outcomes: of each rollout, finite.
        active: whether rollout i had a turn l; a rollout's active turns come first.
        groups: the prompt of each rollout: any integers.
        turn_weight: lambda, at least 0.
        gamma: weight of the next turn in a turn's sum, in [0, 1]; used with `all_turns`.
        all_turns: whether every turn except the last has a turn reward, or only the first.
        eps: as in `group_advantages`.

    Returns:
        In the dtype of `rewards`, torch's default for integers and booleans; 0 where inactive, NaN where an unknown
        reward is part of the sum. No turn is compared with an unknown one.

    Raises:
        ValueError: `turn_weight` or `gamma` is out of range, or as `group_advantages`.
    """
    finite_number("turn_weight", turn_weight, 0)
    finite_number("gamma", gamma, 0, most=1)
    active = as_mask(active, "active")
    of_outcomes = group_advantages(outcomes.double(), groups, eps=eps)
    advantages = torch.zeros(rewards.shape, dtype=torch.float64)
    turns = active.sum(dim=1)
    known = active & ~rewards.isnan()
    unknown = torch.where(active & ~known, torch.nan if turn_weight else 0.0, 0.0).double()
    following = of_outcomes
    for turn in reversed(range(rewards.shape[1])):
        here, last = active[:, turn], turns == turn + 1
        of_turn, scored = unknown[:, turn].clone(), known[:, turn]
        of_turn[scored] = group_advantages(rewards[scored, turn].double(), groups[scored], eps=eps)
        if all_turns:
            before_last = turn_weight * of_turn + gamma * following
        else:
            before_last = of_outcomes + (turn_weight * of_turn if turn == 0 else 0)
        advantages[:, turn] = torch.where(last, of_outcomes, before_last)
        following = torch.where(here, advantages[:, turn], following)
    if not all_turns:
        first = torch.where(known[:, 0], rewards[:, 0].double(), unknown[:, 0])
        combined = turn_weight * first + outcomes.double()
        sums = ~combined.isnan()
        combined[sums] = group_advantages(combined[sums], groups[sums], eps=eps)
        advantages[:, 0] = torch.where(turns == 1, combined, advantages[:, 0])
    return torch.where(active, advantages, 0).to(result_dtype(rewards))
