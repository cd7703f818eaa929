"""Outcomes compared within the group of their prompt (GRPO), and within trees of it (Tree-GRPO)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.grouping import group_scaled
from hf_credit.credit.inputs import result_dtype
from hf_credit.credit.leave_one_out import full_mean

SCALES = ("group", "batch", "none")


def group_advantages(
    outcomes: Shaped[Tensor, " rollouts"],
    groups: Int[Tensor, " rollouts"],
    scale: str = "group",
    eps: float = 1e-4,
) -> Float[Tensor, " rollouts"]:
    """What a rollout is worth beyond the mean of its group, in standard deviations (GRPO, arXiv:2402.03300, 4.1.2).

        A[i] = (R[i] - mean_{j in group of i} R[j]) / (s + eps)

    where s is the sample's standard deviation (n - 1) of the group or of the whole batch, as in TRL's
    `scale_rewards`. Equal outcomes and lone members have nothing to be compared with: their advantage is exactly 0.

    Args:
        outcomes: of each rollout, finite, in the unit of the reward; integers and booleans are promoted.
        groups: which group each belongs to: any integers, in any order.
        scale: `"group"`, `"batch"`, or `"none"` for no division.
        eps: added to the standard deviation, above 0.

    Returns:
        In the dtype of `outcomes`, torch's default for integers and booleans.

    Raises:
        ValueError: `scale` is unknown, `eps` is not above 0, shapes differ, or an outcome is not finite.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}; pick one.")
    if not eps > 0:
        raise ValueError(f"eps must be above 0, got {eps}; 1e-4 is usual.")
    values = outcomes.double()
    advantages = full_mean(values, groups)
    if scale == "group":
        advantages = group_scaled(advantages, groups, eps, correction=1)
    elif scale == "batch":
        advantages = group_scaled(advantages, torch.zeros_like(groups), eps, correction=1, of=values)
    return advantages.to(result_dtype(outcomes))


def tree_group_advantages(
    outcomes: Shaped[Tensor, " leaves"],
    groups: Int[Tensor, " leaves"],
    trees: Int[Tensor, " leaves"],
    eps: float = 1e-4,
) -> Float[Tensor, " leaves"]:
    """A leaf among all leaves of its prompt, plus the same among those of its tree (Tree-GRPO, arXiv:2509.21240).

        A[i] = group_advantages(R, prompt)[i] + group_advantages(R, tree)[i]

    Args:
        outcomes: of each leaf, finite, in the unit of the reward; integers and booleans are promoted.
        groups: the prompt of each leaf: any integers.
        trees: the tree of each leaf: any integers, no two prompts sharing one.
        eps: as in `group_advantages`.

    Raises:
        ValueError: as `group_advantages`.
    """
    return group_advantages(outcomes, groups, eps=eps) + group_advantages(outcomes, trees, eps=eps)
