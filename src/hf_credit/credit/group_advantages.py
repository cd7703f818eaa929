"""Outcomes compared within the group of a prompt (GRPO), and within its trees (Tree-GRPO)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.grouping import group_scaled
from hf_credit.credit.inputs import result_dtype
from hf_credit.credit.leave_one_out import full_mean
from hf_credit.validators import finite_number, one_of

SCALES = ("group", "batch", "none")


def group_advantages(
    outcomes: Shaped[Tensor, " rollouts"],
    groups: Int[Tensor, " rollouts"],
    scale: str = "group",
    eps: float = 1e-4,
) -> Float[Tensor, " rollouts"]:
    """The outcome of a rollout minus the mean of its group, in standard deviations (GRPO, arXiv:2402.03300, 4.1.2).

        A[i] = (R[i] - mean_{j in group of i} R[j]) / (s + eps)

    where s is the sample standard deviation (n - 1) of the group or of the whole batch, as in TRL's `scale_rewards`.
    The advantage is exactly 0 if all outcomes of a group are equal, or if the group has one member.

    Args:
        outcomes: of each rollout, finite, in the unit of the reward; integers and booleans are promoted.
        groups: the group of each rollout: any integers, in any order.
        scale: `"group"`, `"batch"`, or `"none"` for no division.
        eps: added to the standard deviation, above 0.

    Returns:
        In the dtype of `outcomes`, torch's default for integers and booleans.

    Raises:
        ValueError: `scale` is unknown, `eps` is not above 0, shapes differ, or an outcome is not finite.
    """
    one_of("scale", scale, SCALES)
    finite_number("eps", eps, above=0)
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
    """The advantage of a leaf within its prompt plus that within its tree (Tree-GRPO, arXiv:2509.21240).

        A[i] = group_advantages(R, prompt)[i] + group_advantages(R, tree)[i]

    Args:
        outcomes: of each leaf, finite, in the unit of the reward; integers and booleans are promoted.
        groups: the prompt of each leaf: any integers.
        trees: the tree of each leaf: any integers, each in only one prompt.
        eps: as in `group_advantages`.

    Raises:
        ValueError: as `group_advantages`.
    """
    return group_advantages(outcomes, groups, eps=eps) + group_advantages(outcomes, trees, eps=eps)
