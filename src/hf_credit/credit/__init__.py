"""Credit: tensors in, tensors out. One estimator a module."""

from hf_credit.credit.clipped_values import clipped_value_errors, clipped_value_loss
from hf_credit.credit.generalized_advantages import generalized_advantages
from hf_credit.credit.grouping import group_scaled, group_spread, value_assisted
from hf_credit.credit.importance import sampling_ratio
from hf_credit.credit.leave_one_out import full_mean, leave_one_out
from hf_credit.credit.returns import discounted_returns, value_differences
from hf_credit.credit.turn_group import trajectory_advantages, turn_group_advantages

__all__ = [
    "clipped_value_errors",
    "clipped_value_loss",
    "discounted_returns",
    "full_mean",
    "generalized_advantages",
    "group_scaled",
    "group_spread",
    "leave_one_out",
    "sampling_ratio",
    "trajectory_advantages",
    "turn_group_advantages",
    "value_assisted",
    "value_differences",
]
