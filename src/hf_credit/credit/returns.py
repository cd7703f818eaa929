"""Rewards along a trajectory: outcome rewards, value differences, discounted returns, and generalized advantages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype, working_dtype
from hf_credit.credit.shapes import Bool, Float, Real
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
        Returns in the dtype of `rewards`; 0 where inactive, NaN where the sum has an unknown reward.

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
        Rewards in the dtype of `values`; 0 where inactive, NaN where one of the two values is.

    Raises:
        ValueError: `active` is not a mask.
    """
    active, dtype = as_mask(active, "active"), working_dtype(values)
    result, values, outcomes = result_dtype(values), values.to(dtype), outcomes.to(dtype)
    following = torch.cat([values[:, 1:], outcomes[:, None]], dim=1)
    later = torch.cat([active[:, 1:], torch.zeros_like(active[:, :1])], dim=1)
    following = torch.where(later, following, outcomes[:, None])
    return torch.where(active, following - values, 0).to(result)


def generalized_advantages(
    rewards: Real[Tensor, "sequences positions"] | Bool[Tensor, "sequences positions"],
    values: Real[Tensor, "sequences positions"] | Bool[Tensor, "sequences positions"],
    mask: Bool[Tensor, "sequences positions"] | Real[Tensor, "sequences positions"],
    gamma: float | int,
    lam: float | int,
) -> Float[Tensor, "sequences positions"]:
    """Generalized advantages of the actions of each sequence, skipping everything between them.

    With k counting the n actions of a sequence (Schulman et al., 2016, eqs. 11, 12 and 16; paper T3, section 3.1),

        delta[k] = r[k] + gamma V[k + 1] - V[k],    A[k] = delta[k] + gamma lam A[k + 1],    V[n] = A[n] = 0

    `mask` marks the actions: tokens or whole decisions. Observations and padding between them are skipped without a
    discount. A reward there belongs to the last action before it, undiscounted, so that a reward after the last
    tokens of the mask is not lost. A reward before the first action is ignored. The value after the last action is 0.

    The critic's targets are these advantages plus `values`.

    Args:
        rewards: at each position, finite; 0 on padding.
        values: the critic's value before each action, in the unit of the reward; other entries are ignored.
        mask: true (or 1) on actions.
        gamma: discount from one action to the next, in [0, 1].
        lam: decay of the trace, in [0, 1]; 1 gives the return minus the value.

    Raises:
        ValueError: `gamma` or `lam` is outside [0, 1], shapes differ, `mask` is not a mask, or a reward or an action's
            value is not finite.
    """
    finite_number("gamma", gamma, 0, most=1)
    finite_number("lam", lam, 0, most=1)
    if rewards.ndim != 2 or not rewards.shape == values.shape == mask.shape:
        raise ValueError(
            f"rewards, values and mask must have one shape (sequences, positions), got {tuple(rewards.shape)}, "
            f"{tuple(values.shape)} and {tuple(mask.shape)}; pad all to the longest sequence."
        )
    mask = as_mask(mask)
    known = torch.where(mask, values, 0).double()
    if not bool(rewards.isfinite().all() & known.isfinite().all()):
        raise ValueError("rewards and the values of actions must be finite, got NaN or infinity; pad rewards with 0.")

    # Only the actions, one after another. Position 0 collects what belongs to no action and is cut off.
    action = mask.cumsum(dim=1)
    empty = known.new_zeros(len(known), known.shape[1] + 1)
    reward = empty.scatter_add(1, action, rewards.double())[:, 1:]
    value = empty.scatter_add(1, action, known)[:, 1:]
    advantages = reward + gamma * _shift(value, 1) - value

    # The sums over s following actions give those over 2s; a loop over positions takes seconds on a GPU.
    step, decay = 1, gamma * lam
    while step < advantages.shape[1] and decay > 0:
        advantages = advantages + decay * _shift(advantages, step)
        step, decay = 2 * step, decay * decay

    return torch.where(mask, advantages.gather(1, (action - 1).clamp(min=0)), 0).to(result_dtype(rewards))


def _shift(values: Tensor, by: int) -> Tensor:
    """The entry `by` positions later; 0 after the end."""
    return torch.nn.functional.pad(values, (0, by))[:, by:]


def turn_rewards(scores: Sequence[float | int | None], outcome: float | int, turns: int | None = None) -> list[float]:
    """The rewards of the turns of a rollout, which sum to its outcome: the last one includes what is missing.

    Args:
        scores: the reward of each turn; `None` is 0, as are missing ones, and those after the last turn are left out.
        outcome: of the rollout, in the unit of the reward.
        turns: the number of turns; that of scores if `None`.
    """
    turns = len(scores) if turns is None else turns
    rewards = [0.0 if score is None else float(score) for score in (*scores, *[None] * turns)][:turns]
    return [*rewards[:-1], rewards[-1] + (outcome - sum(rewards))] if rewards else []


def pad_to_matrix(rows: Sequence[Sequence[float | int | None]]) -> tuple[Tensor, Tensor]:
    """Ragged rows as a float64 matrix of shape (rows, longest row), and the mask of its values.

    Padding and `None` are 0 in the matrix and false in the mask; NaN, a value that is unknown, is NaN and true.
    """
    width = max([len(row) for row in rows] + [1])
    padded = [value for row in rows for value in (*row, *[None] * (width - len(row)))]
    values = torch.tensor([0.0 if value is None else value for value in padded], dtype=torch.float64)
    mask = torch.tensor([value is not None for value in padded], dtype=torch.bool)
    return values.view(len(rows), width), mask.view(len(rows), width)
