"""Changes of a running score, distributed over the turns before them (the turn credit of prime-rl)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype
from hf_credit.credit.leave_one_out import full_mean
from hf_credit.validators import finite_number


def score_deltas(
    scores: Shaped[Tensor, "rollouts turns"], known: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"]
) -> Float[Tensor, "rollouts turns"]:
    """The change of the score in each turn: the score minus the last known one before it.

    The change is 0 for the first known score and for turns without a score.

    Args:
        scores: after each turn, in any unit; ignored where not known.
        known: whether the turn has a score.
    """
    known, scores = as_mask(known, "known"), scores.to(result_dtype(scores))
    deltas = torch.zeros_like(scores)
    last = torch.zeros_like(deltas[:, 0])
    seen = torch.zeros_like(known[:, 0])
    for turn in range(scores.shape[1]):
        here = known[:, turn]
        deltas[:, turn] = torch.where(here & seen, scores[:, turn] - last, 0)
        last, seen = torch.where(here, scores[:, turn], last), seen | here
    return deltas


def turn_credit(
    deltas: Shaped[Tensor, "rollouts turns"],
    rewards: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    tokens: Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    gamma: float = 0.9,
    beta: float = 1.0,
) -> Float[Tensor, "rollouts turns"]:
    """Group-centred credit of rollouts, redistributed among their turns (prime-rl, pull request 3282).

        c[t] = sum_{u >= t} delta[u] gamma^(u-t) / sum_{j<u} gamma^j        (turns counted from 1)
        A[t] = L + beta (c[t] - mean of c over the rollout's tokens),    L = x - mean_group x,   x = R + sum_t delta[t]

    With beta 0 every turn has L, which includes the deltas, so this is not GRPO.

    Args:
        deltas: the change of the score in each turn, finite where active; integers are promoted.
        rewards: R of each rollout, finite.
        active: whether rollout i had a turn t; a rollout's active turns come first.
        tokens: the number of tokens of each turn, at least 0.
        groups: the prompt of each rollout: any integers.
        gamma: decay of a change over the turns before it, in [0, 1].
        beta: weight of the differences between turns, at least 0.

    Returns:
        In the dtype of `deltas`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: `gamma` or `beta` is out of range, or as `full_mean`.
    """
    finite_number("gamma", gamma, 0, most=1)
    finite_number("beta", beta, 0)
    active = as_mask(active, "active")
    deltas_of_active = torch.where(active, deltas.double(), 0)
    turns = torch.arange(deltas.shape[1])
    distance = (turns[:, None] - turns[None, :]).double()  # from the turn of a change back to the credited turn
    weights = torch.where(distance >= 0, gamma ** distance.clamp(min=0), 0)
    credit = torch.where(active, deltas_of_active @ (weights / weights.sum(dim=1, keepdim=True)), 0)
    share = torch.where(active, tokens.double(), 0)
    mean = (share * credit).sum(dim=1) / share.sum(dim=1).clamp(min=1)
    level = full_mean(rewards.double() + deltas_of_active.sum(dim=1), groups)
    advantages = level[:, None] + beta * (credit - mean[:, None])
    return torch.where(active, advantages, 0).to(result_dtype(deltas))
