"""Turn-level group advantages of verifiable process rewards (paper VPR, section 2.3)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, require, result_dtype
from hf_credit.validators import finite_number, whole_number


def turn_group_advantages(
    rewards: Real[Tensor, "trajectories turns"] | Bool[Tensor, "trajectories turns"],
    active: Bool[Tensor, "trajectories turns"] | Real[Tensor, "trajectories turns"],
    min_active: int = 4,
    eps: float = 1e-8,
    groups: Int[Tensor, " trajectories"] | None = None,
) -> Float[Tensor, "trajectories turns"]:
    r"""Normalises the reward of each turn over the trajectories that are active at that turn.

    With \(\mathcal I_t\) the trajectories active at turn t (paper VPR, eq. 4),

        A[i, t] = (r[i, t] - mean_{j in I_t} r[j, t]) / (std_{j in I_t} r[j, t] + eps)

    where std is the population standard deviation. If `0 < |I_t| < min_active`, the mean and standard deviation are
    those of all active (trajectory, turn) pairs (paper VPR, Appendix F). If all rewards are equal, the advantage is
    exactly 0.

    The group is the whole batch: trajectories start from different states and are not grouped by prompt. With `groups`
    all of this applies within each group, such as the trajectories of one prompt in GRPO. Since the baseline of a turn
    is the mean over the trajectories that reached it, it depends on when the policy stops.

    Args:
        rewards: the reward of each decision, in turn order, finite where active; other entries are ignored.
        active: whether trajectory i made a decision at turn t: true (or 1) or false (or 0).
        min_active: the minimum number of active trajectories for a turn to use its own statistics, at least 1.
        eps: added to the standard deviation, at least 0.
        groups: the group of each trajectory: any integers, in any order; one group if `None`.

    Returns:
        Advantages in the dtype of `rewards`, torch's default for integers and booleans; inactive entries are 0.

    Raises:
        ValueError: `min_active` < 1, `eps` < 0, shapes differ, `active` is not a mask, or an active reward is not
            finite.
    """
    whole_number("min_active", min_active, 1)
    finite_number("eps", eps, 0)
    if rewards.shape != active.shape:
        raise ValueError(
            f"rewards and active must have one shape (trajectories, turns), got {tuple(rewards.shape)} and "
            f"{tuple(active.shape)}; pad both to the longest trajectory."
        )
    active = as_mask(active, "active")
    known = rewards[active]
    require(known.isfinite(), known, "active rewards must be finite", "mark failed decisions inactive")
    if groups is not None:
        if groups.shape != rewards.shape[:1]:
            raise ValueError(
                f"groups must have one number for each trajectory, got {tuple(groups.shape)} for {len(rewards)} "
                "trajectories; number the group of each."
            )
        advantages = torch.zeros_like(rewards, dtype=result_dtype(rewards))
        for group in torch.unique(groups):
            members = groups == group
            advantages[members] = turn_group_advantages(rewards[members], active[members], min_active, eps)
        return advantages
    if not active.any():
        return torch.zeros_like(rewards, dtype=result_dtype(rewards))
    values = torch.where(active, rewards, 0).double()
    enough = active.sum(dim=0) >= min_active
    of_turns, of_all = _statistics(values, active), _statistics(values.flatten(), active.flatten())
    mean, std, differ = (torch.where(enough, of_turn, over) for of_turn, over in zip(of_turns, of_all, strict=True))
    normalised = (values - mean) / torch.where(differ, std + eps, 1.0)
    return torch.where(active & differ, normalised, 0.0).to(result_dtype(rewards))


def trajectory_advantages(
    outcomes: Real[Tensor, " trajectories"] | Bool[Tensor, " trajectories"],
    active: Bool[Tensor, " trajectories"] | Real[Tensor, " trajectories"],
    eps: float = 1e-8,
) -> Float[Tensor, " trajectories"]:
    """Group-relative advantages of whole trajectories: the outcome-reward baseline (paper VPR, eq. 1).

    This is `turn_group_advantages` of trajectories with one turn, whose reward is the outcome. Every decision of a
    trajectory gets the trajectory's advantage.

    Args:
        outcomes: the terminal reward of each trajectory.
        active: whether the trajectory has a usable outcome; others do not count.
        eps: as in `turn_group_advantages`.
    """
    return turn_group_advantages(outcomes[:, None], active[:, None], min_active=1, eps=eps)[:, 0]


def _statistics(values: Tensor, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, population standard deviation, and whether values differ, over the active entries of dimension 0.

    The last is exact: rounding gives a sum of many equal rewards a deviation.
    """
    count = active.sum(dim=0).clamp(min=1)
    mean = torch.where(active, values, 0).sum(dim=0) / count
    deviation = torch.where(active, values - mean, 0)
    low = torch.where(active, values, torch.inf).amin(dim=0)
    high = torch.where(active, values, -torch.inf).amax(dim=0)
    return mean, (deviation.square().sum(dim=0) / count).sqrt(), high > low
