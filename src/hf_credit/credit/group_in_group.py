"""Steps compared at equal states, in episodes compared at equal prompts (GiGPO)."""

from __future__ import annotations

from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.grouping import group_scaled
from hf_credit.credit.inputs import result_dtype
from hf_credit.credit.leave_one_out import full_mean
from hf_credit.validators import finite_number


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
        A_E  = outcome minus the mean of its group,    A_S = return minus the mean of the steps from one anchor

    With `normalise`, each is divided by its group's standard deviation (n - 1) plus eps (`mean_std_norm` of the public
    code; otherwise `mean_norm`). A step or rollout without others has advantage 0; in the public code a lone rollout
    has its outcome, without any baseline.

    Args:
        outcomes: of each rollout, finite, in the unit of the reward; integers and booleans are promoted.
        groups: the prompt of each rollout: any integers.
        returns: the discounted return from each step.
        anchors: the state before each step: any integers, each in only one prompt.
        rollouts: the index of the rollout of each step.
        weight: of the step's advantage (omega), at least 0.
        normalise: whether to divide by standard deviations.
        by_steps: whether a rollout counts once for each of its steps in the statistics of episodes, as in the public
            code.
        eps: added to standard deviations, above 0.

    Returns:
        One for each step, in the dtype of `returns`, torch's default for integers and booleans.

    Raises:
        ValueError: `weight` is below 0, `eps` is not above 0, shapes differ, or a number is not finite.
    """
    finite_number("weight", weight, 0)
    finite_number("eps", eps, above=0)

    def compared(values: Tensor, members: Tensor) -> Tensor:
        centred = full_mean(values.double(), members)
        return group_scaled(centred, members, eps, correction=1) if normalise else centred

    of_steps = compared(outcomes[rollouts], groups[rollouts]) if by_steps else compared(outcomes, groups)[rollouts]
    return (of_steps + weight * compared(returns, anchors)).to(result_dtype(returns))
