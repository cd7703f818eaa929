"""Rewards of turns and of outcomes, each compared within the group, added along the turns (MT-GRPO)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from hf_credit.credit.group_advantages import group_advantages
from hf_credit.credit.inputs import as_mask, result_dtype


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
    """Outcome advantages for every turn, and turn advantages for the turns they are of (MT-GRPO, arXiv:2505.11821).

    With A_O and A_T[l] the group z-scores (`group_advantages`) of the outcomes and of the rewards of turn l, and K the
    number of turns of a rollout, the first turn has A_O + turn_weight A_T[1] and every later one A_O; a rollout of one
    turn has the z-score of turn_weight r[1] + R instead. With `all_turns`,

        A[k] = turn_weight sum_{l=k}^{K-1} gamma^(l-k) A_T[l] + gamma^(K-k) A_O

    where the last turn's reward is the outcome's affair. The paper has K the same in a group. Where it differs, turn l
    is compared among the rollouts that reached it: that baseline depends on who stopped before, and is biased when the
    policy decides that (`alive_advantages` is not).

    Args:
        rewards: of each turn, finite where active; integers and booleans are promoted.
        outcomes: of each rollout, finite.
        active: whether rollout i had a turn l; a rollout's active turns come first.
        groups: the prompt of each rollout: any integers.
        turn_weight: lambda, at least 0.
        gamma: weight of the next turn in a turn's sum, in [0, 1]; used with `all_turns`.
        all_turns: whether every turn but the last has a reward of its own, rather than the first.
        eps: as in `group_advantages`.

    Returns:
        In the dtype of `rewards`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: `turn_weight` or `gamma` is out of range, or as `group_advantages`.
    """
    if not (turn_weight >= 0 and 0 <= gamma <= 1):
        raise ValueError(
            f"turn_weight must be at least 0 and gamma in [0, 1], got {turn_weight} and {gamma}; 1 and 1 are usual."
        )
    active = as_mask(active, "active")
    of_outcomes = group_advantages(outcomes.double(), groups, eps=eps)
    advantages = torch.zeros(rewards.shape, dtype=torch.float64)
    turns = active.sum(dim=1)
    following = of_outcomes
    for turn in reversed(range(rewards.shape[1])):
        here, last = active[:, turn], turns == turn + 1
        own = torch.zeros_like(of_outcomes)
        own[here] = group_advantages(rewards[here, turn].double(), groups[here], eps=eps)
        if all_turns:
            before_last = turn_weight * own + gamma * following
        else:
            before_last = of_outcomes + (turn_weight * own if turn == 0 else 0)
        advantages[:, turn] = torch.where(last, of_outcomes, before_last)
        following = torch.where(here, advantages[:, turn], following)
    if not all_turns:
        first = torch.where(active[:, 0], rewards[:, 0].double(), 0)
        combined = group_advantages(turn_weight * first + outcomes.double(), groups, eps=eps)
        advantages[:, 0] = torch.where(turns == 1, combined, advantages[:, 0])
    return torch.where(active, advantages, 0).to(result_dtype(rewards))
