"""Credit relative to alternatives sampled at the same context (paper C3, section 3.3), and deviations of groups."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hf_credit.credit.inputs import require, result_dtype
from hf_credit.credit.shapes import Bool, Float, Int, Real
from hf_credit.validators import finite_number


def leave_one_out(
    returns: Real[Tensor, " alternatives"] | Bool[Tensor, " alternatives"],
    groups: Int[Tensor, " alternatives"],
    counts: Real[Tensor, " alternatives"] | None = None,
    episodes: Int[Tensor, "alternatives leaves"] | None = None,
) -> Float[Tensor, " alternatives"]:
    r"""The return of an alternative minus the mean of the others at its context, weighted by their replays.

    With C the sum of a group's counts (paper C3, eqs. 13 to 15),

        b[-j] = sum_{i != j} c[i] R[i] / (C - c[j]),    A[j] = R[j] - b[-j]

    The baseline does not depend on its own alternative, so the policy gradient stays unbiased (eq. 21, whose sum over
    a group's n alternatives gives n times the gradient: the paper omits the division by n). Where a context recurs in
    an episode, this needs `episodes`: what follows a decision depends on it. An alternative without others has credit
    0. With equal counts, the credits of a group sum to 0 and are n / (n - 1) times those of
    `full_mean`. There is no division by a standard deviation.

    Args:
        returns: the mean return over the replays of each alternative, finite, in the unit of the reward.
        groups: the context of each alternative: any integers, in any order.
        counts: the number of replays of each alternative, at least 1; one each if `None`.
        episodes: the numbers of the episodes that contain each alternative, filled up with -1. Of two that an episode
            contains, neither takes part in the baseline of the other. No two share one if `None`.

    Returns:
        Credits in the unit and dtype of `returns`; exactly 0 if the returns of a group are equal.

    Raises:
        ValueError: shapes differ, a count is below 1, or a return is not finite.
    """
    values, weights, group, size = _by_group(returns, groups, counts)
    total = values.new_zeros(size).index_add_(0, group, weights)
    deviation = values - _mean(values, weights, group, total)

    # A[j] = C / (C - c[j]) * (R[j] - mean) holds for every j, but amplifies rounding errors if c[j] is nearly C.
    # This can only be the alternative of most replays in a group: its baseline is summed without it.
    most = _of_most_replays(weights, group, size)
    others = torch.where(most, 0, weights)
    total_of_others = values.new_zeros(size).index_add_(0, group, others)
    baseline = _mean(values, others, group, total_of_others.clamp(min=1))

    scaled = deviation * total[group] / torch.where(most, 1, total[group] - weights)
    alone = total_of_others[group] == 0
    credits = torch.where(alone, 0, torch.where(most, values - baseline, scaled))
    return _without_relatives(credits, values, weights, group, episodes).to(result_dtype(returns))


def full_mean(
    returns: Real[Tensor, " alternatives"] | Bool[Tensor, " alternatives"],
    groups: Int[Tensor, " alternatives"],
    counts: Real[Tensor, " alternatives"] | None = None,
    episodes: Int[Tensor, "alternatives leaves"] | None = None,
) -> Float[Tensor, " alternatives"]:
    """The return of an alternative minus the mean at its context, its own included: an ablation (paper C3, eq. 26).

        b = sum_i c[i] R[i] / C,    A[j] = R[j] - b

    The baseline contains a share of the alternative's own return, which scales the expected gradient down: by 1 - 1/n
    with n equal counts.

    Args:
        returns, groups, counts, episodes: as in `leave_one_out`.

    Returns:
        Credits as in `leave_one_out`; the count-weighted credits of a group without `episodes` sum to 0.

    Raises:
        ValueError: as `leave_one_out`.
    """
    values, weights, group, size = _by_group(returns, groups, counts)
    total = values.new_zeros(size).index_add_(0, group, weights)
    credits = values - _mean(values, weights, group, total)
    return _without_relatives(credits, values, weights, group, episodes, itself=True).to(result_dtype(returns))


def number_of_others(
    groups: Int[Tensor, " alternatives"], episodes: Int[Tensor, "alternatives leaves"] | None = None
) -> Int[Tensor, " alternatives"]:
    """The number of alternatives in the baseline of each by `leave_one_out`, whose arguments these are."""
    _, group, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    others: Tensor = sizes[group] - 1
    for members, related in _recurring(group, episodes):
        others[members] = (~related).sum(dim=1)
    return others


def _recurring(group: Tensor, episodes: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """The members of each group in which an episode occurs twice, and which of them share one, each with itself."""
    if episodes is None or not len(group):
        return
    places = (group[:, None] * (episodes.max() + 1) + episodes)[episodes >= 0]
    visits, times = torch.unique(places, return_counts=True)
    for number in torch.unique(visits[times > 1] // (episodes.max() + 1)):
        (members,) = (group == number).nonzero(as_tuple=True)
        of_members = episodes[members]
        same = (of_members[:, None, :, None] == of_members[None, :, None, :]) & (of_members >= 0)[:, None, :, None]
        yield members, same.flatten(start_dim=2).any(dim=2)


def _without_relatives(
    credits: Tensor, values: Tensor, weights: Tensor, group: Tensor, episodes: Tensor | None, itself: bool = False
) -> Tensor:
    """Credits whose baselines have no alternative that shares an episode with their own, except perhaps `itself`."""
    for members, related in _recurring(group, episodes):
        itself_too = torch.eye(len(members), dtype=torch.bool, device=group.device) & itself
        others = weights[members] * (~related | itself_too)
        total = others.sum(dim=1)
        mean = (others * values[members]).sum(dim=1) / total.clamp(min=1)
        credits[members] = torch.where(total > 0, values[members] - mean, 0)
    return credits


def _by_group(returns: Tensor, groups: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor, Tensor, int]:
    """Returns relative to the lowest of their group, weights, indices of the groups, and the number of groups.

    A shift common to a group changes no credit; relative returns avoid its rounding errors, and equal returns are 0.
    """
    counts = torch.ones_like(groups) if counts is None else counts
    if returns.ndim != 1 or not returns.shape == groups.shape == counts.shape:
        raise ValueError(
            f"returns, groups and counts must have one shape (alternatives,), got {tuple(returns.shape)}, "
            f"{tuple(groups.shape)} and {tuple(counts.shape)}; give one entry of each for every alternative."
        )
    require(returns.isfinite(), returns, "returns must be finite", "leave out alternatives without a return")
    require(counts >= 1, counts, "counts must be at least 1", "leave out alternatives without a replay")
    present, group = torch.unique(groups, return_inverse=True)
    values = returns.double()
    lowest = values.new_full((len(present),), torch.inf).scatter_reduce_(0, group, values, "amin")
    return values - lowest[group], counts.double(), group, len(present)


def _mean(values: Tensor, weights: Tensor, group: Tensor, total: Tensor) -> Tensor:
    """The weighted mean of each entry's group; the weights of a group sum to `total`."""
    return (torch.zeros_like(total).index_add_(0, group, weights * values) / total)[group]


def _of_most_replays(weights: Tensor, group: Tensor, size: int) -> Tensor:
    """A mask with the first entry of largest weight in each group."""
    highest = weights.new_zeros(size).scatter_reduce_(0, group, weights, "amax")
    position = torch.arange(len(weights), device=weights.device)
    candidates = torch.where(weights == highest[group], position, len(weights))
    first = torch.full((size,), len(weights), device=weights.device).scatter_reduce_(0, group, candidates, "amin")
    return position == first[group]


def group_scaled(
    credits: Float[Tensor, " members"],
    groups: Int[Tensor, " members"],
    eps: float = 1e-8,
    correction: int = 0,
    of: Float[Tensor, " members"] | None = None,
) -> Float[Tensor, " members"]:
    """Credits divided by the standard deviation of their group, 0 for a group of one.

        A[j] / (s[j] + eps),   s[j] = sqrt( sum_{i in group of j} (x[i] - mean)^2 / (n - correction) )

    Args:
        credits: of each member.
        groups: the group of each member: any integers, in any order.
        eps: added to the deviation.
        correction: 0 for the population's deviation, 1 for the sample's.
        of: x, finite, whose deviation divides; the credits if `None`.
    """
    squares = full_mean((credits if of is None else of).double(), groups) ** 2
    _, group, size = torch.unique(groups, return_inverse=True, return_counts=True)
    sums = squares.new_zeros(len(size)).index_add_(0, group, squares)
    variance: Tensor = (sums / (size - correction).clamp(min=1))[group]
    return credits / (variance.sqrt() + eps)


def value_assisted(
    returns: Float[Tensor, " alternatives"],
    values: Float[Tensor, " alternatives"],
    groups: Int[Tensor, " alternatives"],
    counts: Int[Tensor, " alternatives"] | None = None,
    share: float = 1.0,
    episodes: Int[Tensor, "alternatives leaves"] | None = None,
) -> Float[Tensor, " alternatives"]:
    """Leave-one-out credit with a baseline that mixes the others' returns and a critic's predictions (public code of
    C3).

        A[j] = R[j] - (1 - share) b[-j] - share v[-j]

    where b[-j] and v[-j] are the count-weighted means of returns and of predictions over the other alternatives at
    the context. With `share` = 0 this is `leave_one_out`.

    Args:
        returns, groups, counts, episodes: as in `leave_one_out`.
        values: the critic's prediction for each alternative, in the unit of the reward.
        share: of the predictions in the baseline, in [0, 1].

    Raises:
        ValueError: `share` is outside [0, 1], or as `leave_one_out`.
    """
    finite_number("share", share, 0, most=1)
    credits = leave_one_out(returns, groups, counts, episodes)
    # The mean of the others' values is the value minus its leave-one-out credit.
    assisted = returns - values + leave_one_out(values, groups, counts, episodes)
    return credits + share * (assisted - credits)
