"""Advantages from a critic's values (generalized advantage estimation, Schulman et al., 2016)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype
from hf_credit.validators import finite_number


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

    Returns:
        Advantages in the dtype of `rewards`, torch's default for integers and booleans; 0 off the mask.

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
