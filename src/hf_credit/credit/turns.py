"""Credit of turns: baselines, group-relative advantages, and scores distributed over the turns before them.

Subtracting from each turn's reward the mean over the rollouts that reached the turn, and summing over later turns,
subtracts as many means as a rollout has turns: continuing then costs the means of all later turns (verl, issue 7244).
`alive_advantages` and `all_turns_advantages` avoid that: they stay unbiased if the policy decides the number of turns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hf_credit.credit.group_advantages import group_advantages
from hf_credit.credit.inputs import as_mask, require, result_dtype
from hf_credit.credit.leave_one_out import full_mean, leave_one_out, number_of_others
from hf_credit.credit.returns import discounted_returns
from hf_credit.credit.shapes import Bool, Float, Int, Real, Shaped
from hf_credit.validators import finite_number, whole_number


def multi_turn_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    turn_weight: float = 1.0,
    gamma: float = 1.0,
    all_turns: bool = False,
    eps: float = 1e-4,
) -> Float[Tensor, "rollouts turns"]:
    """Outcome advantages for all turns, plus turn advantages for some of them (MT-GRPO, arXiv:2505.11821).

    Let A_O and A_T[l] be the group z-scores (`group_advantages`) of the outcomes and of the rewards of turn l, and K
    the number of turns of a rollout. The first turn has A_O + turn_weight A_T[1], later turns have A_O, and the only
    turn of a rollout with K = 1 has the z-score of turn_weight r[1] + R. With `all_turns`,

        A[k] = turn_weight sum_{l=k}^{K-1} gamma^(l-k) A_T[l] + gamma^(K-k) A_O

    where the outcome is the reward of the last turn. In the paper all rollouts of a group have the same K. If they
    differ, turn l is compared among the rollouts that reached it: this baseline depends on which rollouts stopped
    before, so it is biased if the policy decides when to stop (`alive_advantages` is unbiased).

    Args:
        rewards: of each turn, finite where active, or NaN if unknown; integers and booleans are promoted.
        outcomes: of each rollout, finite.
        active: whether rollout i had a turn l; a rollout's active turns come first.
        groups: the prompt of each rollout: any integers.
        turn_weight: lambda, at least 0.
        gamma: weight of the next turn in a turn's sum, in [0, 1]; used with `all_turns`.
        all_turns: whether every turn except the last has a turn reward, or only the first.
        eps: as in `group_advantages`.

    Returns:
        In the dtype of `rewards`; 0 where inactive, NaN where an unknown reward is part of the sum. No turn is
        compared with an unknown one.

    Raises:
        ValueError: `turn_weight` or `gamma` is out of range, or as `group_advantages`.
    """
    finite_number("turn_weight", turn_weight, 0)
    finite_number("gamma", gamma, 0, most=1)
    active = as_mask(active, "active")
    of_outcomes = group_advantages(outcomes.double(), groups, eps=eps)
    advantages = torch.zeros(rewards.shape, dtype=torch.float64)
    turns = active.sum(dim=1)
    known = active & ~rewards.isnan()
    unknown = torch.where(active & ~known, torch.nan if turn_weight else 0.0, 0.0).double()
    following = of_outcomes
    for turn in reversed(range(rewards.shape[1])):
        here, last = active[:, turn], turns == turn + 1
        of_turn, scored = unknown[:, turn].clone(), known[:, turn]
        of_turn[scored] = group_advantages(rewards[scored, turn].double(), groups[scored], eps=eps)
        if all_turns:
            before_last = turn_weight * of_turn + (gamma * following if gamma else 0)  # what follows may be unknown
        else:
            before_last = of_outcomes + (turn_weight * of_turn if turn == 0 else 0)
        advantages[:, turn] = torch.where(last, of_outcomes, before_last)
        following = torch.where(here, advantages[:, turn], following)
    if not all_turns:
        first = torch.where(known[:, 0], rewards[:, 0].double(), unknown[:, 0])
        combined = turn_weight * first + outcomes.double()
        sums = ~combined.isnan()
        combined[sums] = group_advantages(combined[sums], groups[sums], eps=eps)
        advantages[:, 0] = torch.where(turns == 1, combined, advantages[:, 0])
    return torch.where(active, advantages, 0).to(result_dtype(rewards))


def alive_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    discount: float = 1.0,
    episodes: Int[Tensor, "rollouts turns leaves"] | None = None,
) -> Float[Tensor, "rollouts turns"]:
    """The return from a turn minus the mean return of the other rollouts that reached this turn.

        A[i, k] = G[i, k] - mean_{j != i, alive at k} G[j, k],    G[i, k] = sum_{l >= k} discount^(l - k) r[i, l]

    It subtracts one mean, whatever follows, and the mean does not depend on the decision of rollout i at k. A rollout
    that reached a turn alone keeps its return there: an advantage of 0 would remove its share of the gradient.

    Args:
        rewards: of each turn, finite where active, in the unit of the reward; the last turn's includes the outcome.
            Integers and booleans are promoted.
        active: whether rollout i had a turn k; a rollout's active turns come first.
        groups: the prompt of each rollout: any integers.
        discount: from one turn to the next, in [0, 1].
        episodes: as in `leave_one_out`, of each turn, for rollouts that share turns.

    Raises:
        ValueError: as `leave_one_out`.
    """
    active = as_mask(active, "active")
    returns = discounted_returns(rewards.double(), active, discount)
    rollouts, turns = active.nonzero(as_tuple=True)
    group = torch.unique(groups, return_inverse=True)[1]
    alive, values = group[rollouts] * rewards.shape[1] + turns, returns[active]
    advantages = torch.zeros_like(returns)
    advantages[active] = _leave_one_out_or_return(values, alive, None if episodes is None else episodes[active])
    return advantages.to(result_dtype(rewards))


def all_turns_advantages(
    rewards: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    episodes: Int[Tensor, "rollouts turns leaves"] | None = None,
) -> Float[Tensor, "rollouts turns"]:
    """The return from a turn minus the others' mean rewards of this and every later turn and their mean outcome.

        A[i, k] = G[i, k] - mean_{j != i} G[j, k],    G[i, k] = sum_{l >= k} r[i, l] + R[i]

    where a turn that a rollout did not reach has reward 0. The number of subtracted means does not depend on the
    length of rollout i. A rollout without others in its group keeps its return.

    Args:
        rewards: of each turn, finite where active, in the unit of the reward; integers and booleans are promoted.
        outcomes: R, the reward at the end of each rollout besides the rewards of its turns, finite.
        active, groups, episodes: as in `alive_advantages`.

    Raises:
        ValueError: as `leave_one_out`.
    """
    active = as_mask(active, "active")
    rewards_to_go = torch.where(active, rewards.double(), 0).flip(1).cumsum(1).flip(1)
    returns = rewards_to_go + outcomes.double()[:, None]
    for turn in range(returns.shape[1]):
        episodes_of_turn = None if episodes is None else episodes[:, turn]
        returns[:, turn] = _leave_one_out_or_return(returns[:, turn].contiguous(), groups, episodes_of_turn)
    return torch.where(active, returns, 0).to(result_dtype(rewards))


def _leave_one_out_or_return(returns: Tensor, groups: Tensor, episodes: Tensor | None) -> Tensor:
    """`leave_one_out`; the return of a member without others in its group."""
    alone = number_of_others(groups, episodes) == 0
    return torch.where(alone, returns, leave_one_out(returns, groups, episodes=episodes))


def score_deltas(
    scores: Shaped[Tensor, "rollouts turns"],
    known: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    first: bool = False,
) -> Float[Tensor, "rollouts turns"]:
    """The change of the score in each turn: the score minus the last known one before it.

    The change is 0 for turns without a score, and for the first known one, or with `first` that score itself.

    Args:
        scores: after each turn, in any unit; ignored where not known.
        known: whether the turn has a score.
    """
    known, scores = as_mask(known, "known"), scores.to(result_dtype(scores))
    deltas = torch.zeros_like(scores)
    last = torch.zeros_like(deltas[:, 0])
    seen = torch.full_like(known[:, 0], first)
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
