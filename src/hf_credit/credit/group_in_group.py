"""Steps compared at equal states, within episodes compared at equal prompts (GiGPO)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.grouping import group_scaled
from hf_credit.credit.inputs import result_dtype
from hf_credit.credit.leave_one_out import full_mean


def group_in_group_advantages(
    outcomes: Shaped[Tensor, " rollouts"],
    groups: Int[Tensor, " rollouts"],
    returns: Shaped[Tensor, " steps"],
    anchors: Int[Tensor, " steps"],
    rollouts: Int[Tensor, " steps"],
    weight: float = 1.0,
    normalise: bool = False,
    by_steps: bool = False,
    eps: float = 1e-6,
) -> Float[Tensor, " steps"]:
    """The advantage of an episode plus that of a step among the steps from equal states (GiGPO, arXiv:2505.10978).

        A[k] = A_E[rollout of k] + weight A_S[k]
        A_E  = outcomes less their mean over the group,    A_S = returns less their mean over the steps of one anchor

    each also divided by its group's standard deviation (n - 1) plus eps with `normalise` (the public code's
    `mean_std_norm`; `mean_norm` without). A step or a rollout without others to be compared with adds 0: the public
    code lets a lone rollout keep its outcome, which no baseline then makes up for.

    Args:
        outcomes: of each rollout, finite, in the unit of the reward; integers and booleans are promoted.
        groups: the prompt of each rollout: any integers.
        returns: the discounted return from each step on.
        anchors: the state that each step was taken from: any integers, no two prompts sharing one.
        rollouts: the index of the rollout that each step is of.
        weight: of the step's advantage (omega), at least 0.
        normalise: whether to divide by standard deviations.
        by_steps: whether a rollout weighs as many times as it has steps in the statistics of episodes, as in the
            public code.
        eps: added to standard deviations, above 0.

    Returns:
        One for each step, in the dtype of `returns`, torch's default for integers and booleans.

    Raises:
        ValueError: `weight` is below 0, `eps` is not above 0, shapes differ, or a number is not finite.
    """
    if not (weight >= 0 and eps > 0):
        raise ValueError(f"weight must be at least 0 and eps above 0, got {weight} and {eps}; 1 and 1e-6 are usual.")

    def compared(values: Tensor, members: Tensor) -> Tensor:
        centred = full_mean(values.double(), members)
        return group_scaled(centred, members, eps, correction=1) if normalise else centred

    members = rollouts if by_steps else torch.arange(len(groups))
    of_members = compared(outcomes[members], groups[members])
    of_episodes = of_members if by_steps else of_members[rollouts]
    advantages = of_episodes + weight * compared(returns, anchors)
    return advantages.to(result_dtype(returns))
