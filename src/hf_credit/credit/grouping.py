"""What is common to estimators that compare within groups."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hf_credit.credit.leave_one_out import full_mean, leave_one_out


def group_spread(
    values: Float[Tensor, " members"], groups: Int[Tensor, " members"], correction: int = 0
) -> Float[Tensor, " members"]:
    """The standard deviation of each member's group.

        s[j] = sqrt( sum_{i in group of j} (x[i] - mean)^2 / (n - correction) )

    Args:
        values: finite.
        groups: which group each belongs to: any integers, in any order.
        correction: 0 for the population's, 1 for the sample's.

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
        of: whose deviation; that of the credits themselves if `None`.
    """
    return credits / (group_spread(credits if of is None else of, groups, correction) + eps)


def value_assisted(
    returns: Float[Tensor, " alternatives"],
    values: Float[Tensor, " alternatives"],
    groups: Int[Tensor, " alternatives"],
    counts: Int[Tensor, " alternatives"] | None = None,
    share: float = 1.0,
) -> Float[Tensor, " alternatives"]:
    """Leave-one-out credit whose baseline is in part what a critic expects of the others (public code of C3).

        A[j] = R[j] - (1 - share) b[-j] - share v[-j]

    where b[-j] and v[-j] are the count-weighted means over the others at the context of what they returned and of what
    the critic expects of them. `share` = 0 is `leave_one_out`.

    Args:
        returns, groups, counts: as in `leave_one_out`.
        values: what the critic expects of each alternative, in the unit of the reward.
        share: in [0, 1].

    Raises:
        ValueError: `share` is outside [0, 1], or as `leave_one_out`.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1], got {share}; 0 leaves the critic out.")
    credits = leave_one_out(returns, groups, counts)
    # The mean of the others' values is a value less its own leave-one-out credit.
    assisted = returns - values + leave_one_out(values, groups, counts)
    return credits + share * (assisted - credits)
