"""Turn-level group advantages of verifiable process rewards (paper VPR, section 2.3)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype


def turn_group_advantages(
    rewards: Real[Tensor, "trajectories turns"] | Bool[Tensor, "trajectories turns"],
    active: Bool[Tensor, "trajectories turns"] | Real[Tensor, "trajectories turns"],
    min_active: int = 4,
    eps: float = 1e-8,
    groups: Int[Tensor, " trajectories"] | None = None,
) -> Float[Tensor, "trajectories turns"]:
    r"""Normalises the reward of each turn over the trajectories still active at that turn.

    With \(\mathcal I_t\) the trajectories active at turn t (paper VPR, eq. 4),

        A[i, t] = (r[i, t] - mean_{j in I_t} r[j, t]) / (std_{j in I_t} r[j, t] + eps)

    where std is the population standard deviation. Where `0 < |I_t| < min_active`, the mean and the standard
    deviation of all active (trajectory, turn) pairs stand in (paper VPR, Appendix F). Without spread there is
    nothing to prefer, and the advantage is exactly 0.

    The group is the whole batch: trajectories start from different states and are not grouped by prompt. With `groups`
    it is the trajectories of one group, such as those of one prompt in GRPO, for all of the above. Since a turn's
    baseline is the mean over those trajectories that got that far, it depends on when the policy stops.

    Args:
        rewards: the reward of each decision, in turn order, finite where active and anything elsewhere.
        active: whether trajectory i made a decision at turn t: true (or 1) or false (or 0).
        min_active: the fewest active trajectories whose own statistics a turn uses, at least 1.
        eps: added to the standard deviation, at least 0.
        groups: which group each trajectory belongs to, any integers in any order; all one group if `None`.

    Returns:
        Advantages in the dtype of `rewards`, torch's default for integers and booleans; inactive entries are 0.

    Raises:
        ValueError: `min_active` < 1, `eps` < 0, shapes differ, there is not one group for each trajectory, `active` is
            no mask, or an active reward is not finite.
    """
    if min_active < 1 or eps < 0:
        raise ValueError(
            f"min_active must be at least 1 and eps at least 0, got {min_active} and {eps}; the paper uses 4 and 1e-8."
        )
    if rewards.shape != active.shape:
        raise ValueError(
            f"rewards and active must have one shape (trajectories, turns), got {tuple(rewards.shape)} and "
            f"{tuple(active.shape)}; pad both to the longest trajectory."
        )
    active = as_mask(active, "active")
    if not bool(rewards[active].isfinite().all()):
        raise ValueError("active rewards must be finite, got NaN or infinity; mark failed decisions inactive.")

    if groups is not None:
        if groups.shape != rewards.shape[:1]:
            raise ValueError(
                f"groups must have one number for each trajectory, got {tuple(groups.shape)} for {len(rewards)} "
                "trajectories; number the group of each."
            )
        found = torch.zeros_like(rewards, dtype=result_dtype(rewards))
        for group in torch.unique(groups):
            own = groups == group
            found[own] = turn_group_advantages(rewards[own], active[own], min_active, eps)
        return found
    if not active.any():
        return torch.zeros_like(rewards, dtype=result_dtype(rewards))
    values = torch.where(active, rewards, 0).double()  # sums of many equal rewards must not look like spread
    count = active.sum(dim=0)
    own_group = count >= min_active

    mean, std, spread = _statistics(values, active, dim=0)
    mean_all, std_all, spread_all = _statistics(values.flatten(), active.flatten(), dim=0)
    mean = torch.where(own_group, mean, mean_all)
    std = torch.where(own_group, std, std_all)
    spread = torch.where(own_group, spread, spread_all)

    normalised = (values - mean) / torch.where(spread, std + eps, 1.0)
    return torch.where(active & spread, normalised, 0.0).to(result_dtype(rewards))


def trajectory_advantages(
    outcomes: Real[Tensor, " trajectories"] | Bool[Tensor, " trajectories"],
    active: Bool[Tensor, " trajectories"] | Real[Tensor, " trajectories"],
    eps: float = 1e-8,
) -> Float[Tensor, " trajectories"]:
    """Group-relative advantages of whole trajectories: the outcome-reward baseline (paper VPR, eq. 1).

    This is `turn_group_advantages` of a batch whose trajectories have one turn, the outcome its reward. Every
    decision of a trajectory gets the trajectory's advantage.

    Args:
        outcomes: the terminal reward of each trajectory.
        active: whether the trajectory counts; one without a usable outcome does not.
        eps: as in `turn_group_advantages`.
    """
    return turn_group_advantages(outcomes[:, None], active[:, None], min_active=1, eps=eps)[:, 0]


def _statistics(values: Tensor, active: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, population standard deviation, and whether there is spread, over the active entries along `dim`."""
    count = active.sum(dim=dim).clamp(min=1)
    mean = torch.where(active, values, 0).sum(dim=dim) / count
    deviation = torch.where(active, values - mean, 0)
    low = torch.where(active, values, torch.inf).amin(dim=dim)
    high = torch.where(active, values, -torch.inf).amax(dim=dim)
    return mean, (deviation.square().sum(dim=dim) / count).sqrt(), high > low
