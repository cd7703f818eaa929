"""Outcomes compared in a prompt (GRPO, GDPO), its trees (Tree-GRPO, CARL, AT2PO) and at equal states (GiGPO, HGPO)."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_credit.credit.inputs import require, result_dtype
from hf_credit.credit.leave_one_out import full_mean, group_scaled
from hf_credit.credit.shapes import Float, Int, Shaped
from hf_credit.validators import finite_number, one_of


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

    Raises:
        ValueError: `scale` is unknown, `eps` is not above 0, shapes differ, or an outcome is not finite.
    """
    one_of("scale", scale, ("group", "batch", "none"))
    finite_number("eps", eps, above=0)
    values = outcomes.double()
    advantages = full_mean(values, groups)
    if scale == "group":
        advantages = group_scaled(advantages, groups, eps, correction=1)
    elif scale == "batch":
        advantages = group_scaled(advantages, torch.zeros_like(groups), eps, correction=1, of=values)
    return advantages.to(result_dtype(outcomes))


def decoupled_advantages(
    rewards: Shaped[Tensor, "rollouts rewards"],
    groups: Int[Tensor, " rollouts"],
    weights: Shaped[Tensor, " rewards"],
    eps: float = 1e-4,
) -> Float[Tensor, " rollouts"]:
    """Several rewards, each normalised in its group, summed, and normalised over the batch (GDPO, arXiv:2601.05242).

        S[i] = sum_k w[k] group_advantages(r[k])[i],    A[i] = (S[i] - mean S) / (std S + eps)

    with means and standard deviations (n - 1) over the group in the sum, and over all rollouts around it.

    Args:
        rewards: of each rollout, each in its own unit; a rollout whose reward is NaN has 0 for it.
        groups: the prompt of each rollout: any integers.
        weights: of each reward.
        eps: added to standard deviations, above 0.

    Returns:
        In the dtype of `rewards`; exactly 0 if all sums are equal.

    Raises:
        ValueError: as `group_advantages`.
    """
    sums = torch.zeros(len(rewards), dtype=torch.float64)
    for column, weight in zip(rewards.double().T, weights.double(), strict=True):
        known = ~column.isnan()
        sums[known] += weight * group_advantages(column[known], groups[known], eps=eps)
    return group_advantages(sums, torch.zeros_like(groups), eps=eps).to(result_dtype(rewards))


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
    episodes: Int[Tensor, "steps leaves"] | None = None,
) -> Float[Tensor, " steps"]:
    """The advantage of an episode plus that of a step among the steps from equal states (GiGPO, arXiv:2505.10978).

        A[k] = A_E[rollout of k] + weight A_S[k]
        A_E  = outcome minus the mean of its group,    A_S = return minus the mean of the steps from one anchor

    The mean of a step leaves out the other steps of its episode: what follows it depends on it.

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
        episodes: as in `leave_one_out`; `rollouts` if `None`.

    Returns:
        One for each step, in the dtype of `returns`.

    Raises:
        ValueError: `weight` is below 0, `eps` is not above 0, shapes differ, or a number is not finite.
    """
    finite_number("weight", weight, 0)
    finite_number("eps", eps, above=0)

    def compared(values: Tensor, members: Tensor, episodes: Tensor | None = None) -> Tensor:
        centred = full_mean(values.double(), members, episodes=episodes)
        return group_scaled(centred, members, eps, correction=1, of=values) if normalise else centred

    of_steps = compared(outcomes[rollouts], groups[rollouts]) if by_steps else compared(outcomes, groups)[rollouts]
    episodes = rollouts[:, None] if episodes is None else episodes
    return (of_steps + weight * compared(returns, anchors, episodes)).to(result_dtype(returns))


def nested_group_advantages(
    returns: Shaped[Tensor, " steps"],
    anchors: Int[Tensor, "steps levels"],
    alpha: float = 1.0,
    offset: float = 1.0,
    normalise: bool = True,
    eps: float = 1e-6,
    episodes: Int[Tensor, "steps leaves"] | None = None,
) -> Float[Tensor, " steps"]:
    """The advantage of a step among those from equal states with equal histories (HGPO, arXiv:2602.22817, eq. 7).

        A[s] = sum_k w[k] A_k[s] / sum_k w[k],    w[k] = (k + offset)^alpha,    over the k with A_k[s] != 0

    A_k is the return minus the mean of the steps whose states, the present one and the k before it, are equal.

    Args:
        returns: the discounted return from each step, finite.
        anchors: for each k, a number of these states: any integers, each in only one prompt; below 0 if a step has
            fewer than k before it.
        alpha: at least 0; with 0 all levels weigh the same.
        offset: 1 in the paper, 2 in its public code, above 0.
        normalise: whether each A_k is divided by the standard deviation (n) of its group plus eps.
        eps: above 0.
        episodes: as in `leave_one_out`.

    Returns:
        In the dtype of `returns`; 0 for a step without others.

    Raises:
        ValueError: `alpha`, `offset` or `eps` is out of range, or a return is not finite.
    """
    finite_number("alpha", alpha, 0)
    finite_number("offset", offset, above=0)
    finite_number("eps", eps, above=0)
    total, weights = torch.zeros(len(returns), dtype=torch.float64), torch.zeros(len(returns), dtype=torch.float64)
    for level, members in enumerate(anchors.T):
        here = members >= 0
        of_level = torch.zeros_like(total)
        episodes_here = None if episodes is None else episodes[here]
        values = returns[here].double()
        of_level[here] = full_mean(values, members[here], episodes=episodes_here)
        if normalise:
            of_level[here] = group_scaled(of_level[here], members[here], eps, of=values)
        weight = (level + offset) ** alpha
        total += weight * of_level
        weights += weight * (of_level != 0)
    return (total / weights.clamp(min=torch.finfo(torch.float64).tiny)).to(result_dtype(returns))


def turn_values(parents: Int[Tensor, " vertices"], leaves: Shaped[Tensor, " vertices"]) -> Float[Tensor, " vertices"]:
    """The value of each vertex of a tree (CARL, arXiv:2512.04949; AT2PO, arXiv:2601.04767).

        V(v) = the value of a leaf, else the plain mean of V over the children

    Every child has the same weight, whatever its number of leaves.

    Args:
        parents: the index of each vertex's parent, which comes before it; -1 for a root.
        leaves: the values of the leaves, finite; other entries are ignored.

    Returns:
        In 64 bits; a vertex whose children have equal values has exactly their value.

    Raises:
        ValueError: a parent does not come before its child.
    """
    vertices = torch.arange(len(parents))
    require(parents < vertices, parents, "a parent must come before its children", "order vertices from the roots on")
    children: list[list[float]] = [[] for _ in parents]
    values = leaves.double().tolist()
    for vertex, parent in reversed(list(enumerate(parents.tolist()))):
        if below := children[vertex]:
            lowest = min(below)  # relative to it, equal values have a mean that equals them
            values[vertex] = lowest + sum(value - lowest for value in reversed(below)) / len(below)
        if parent >= 0:
            children[parent].append(values[vertex])
    return torch.tensor(values, dtype=torch.float64)


def branch_advantages(
    parents: Int[Tensor, " vertices"], outcomes: Shaped[Tensor, " vertices"]
) -> tuple[Float[Tensor, " vertices"], Int[Tensor, " vertices"]]:
    """The change of value in the branch to each vertex (CARL, arXiv:2512.04949).

        A(u -> v) = V(v) - V(u),    V as in `turn_values`

    Args:
        parents: as in `turn_values`.
        outcomes: of the leaves, finite, in the unit of the reward; other entries are ignored.

    Returns:
        The advantage of the branch to each vertex, exactly 0 for roots and if all siblings have the same value, in the
        dtype of `outcomes`; and its number of siblings, itself included, 0 for roots.

    Raises:
        ValueError: a parent does not come before its child.
    """
    values = turn_values(parents, outcomes)
    root = parents < 0
    advantages = torch.where(root, 0, values - values[parents])
    siblings = torch.where(root, 0, torch.bincount(parents + 1, minlength=len(parents) + 1)[parents + 1])
    return advantages.to(result_dtype(outcomes)), siblings
