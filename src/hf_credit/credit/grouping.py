"""Common parts of estimators that compare within groups."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hf_credit.credit.leave_one_out import full_mean, leave_one_out
from hf_credit.validators import finite_number


def group_spread(
    values: Float[Tensor, " members"], groups: Int[Tensor, " members"], correction: int = 0
) -> Float[Tensor, " members"]:
    """The standard deviation of each member's group.

        s[j] = sqrt( sum_{i in group of j} (x[i] - mean)^2 / (n - correction) )

    Args:
        values: finite.
        groups: the group of each member: any integers, in any order.
        correction: 0 for the population's deviation, 1 for the sample's.

    Returns:
        In the unit of `values`; 0 for a group of one.
    """
    squares = full_mean(values.double(), groups) ** 2
    _, group, size = torch.unique(groups, return_inverse=True, return_counts=True)
    sums = squares.new_zeros(len(size)).index_add_(0, group, squares)
    variance: Tensor = (sums / (size - correction).clamp(min=1))[group]
    return variance.sqrt()


def group_scaled(
    credits: Float[Tensor, " members"],
    groups: Int[Tensor, " members"],
    eps: float = 1e-8,
    correction: int = 0,
    of: Float[Tensor, " members"] | None = None,
) -> Float[Tensor, " members"]:
    """Credits divided by the standard deviation of their group.

        A[j] / (s[j] + eps)

    Args:
        credits: of each member.
        groups, correction: as in `group_spread`.
        eps: added to the deviation.
        of: the values whose deviation divides; the credits if `None`.
    """
    return credits / (group_spread(credits if of is None else of, groups, correction) + eps)


def value_assisted(
    returns: Float[Tensor, " alternatives"],
    values: Float[Tensor, " alternatives"],
    groups: Int[Tensor, " alternatives"],
    counts: Int[Tensor, " alternatives"] | None = None,
    share: float = 1.0,
) -> Float[Tensor, " alternatives"]:
    """Leave-one-out credit with a baseline that mixes the others' returns and a critic's predictions (public code of
    C3).

        A[j] = R[j] - (1 - share) b[-j] - share v[-j]

    where b[-j] and v[-j] are the count-weighted means of returns and of predictions over the other alternatives at
    the context. With `share` = 0 this is `leave_one_out`.

    Args:
        returns, groups, counts: as in `leave_one_out`.
        values: the critic's prediction for each alternative, in the unit of the reward.
        share: of the predictions in the baseline, in [0, 1].

    Raises:
        ValueError: `share` is outside [0, 1], or as `leave_one_out`.
    """
    finite_number("share", share, 0, most=1)
    credits = leave_one_out(returns, groups, counts)
    # The mean of the others' values is the value minus its leave-one-out credit.
    assisted = returns - values + leave_one_out(values, groups, counts)
    return credits + share * (assisted - credits)
