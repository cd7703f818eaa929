"""Credit: tensors in, tensors out. One estimator a module."""

from hf_credit.credit.importance import sampling_ratio
from hf_credit.credit.returns import discounted_returns, value_differences
from hf_credit.credit.turn_group import trajectory_advantages, turn_group_advantages

__all__ = [
    "discounted_returns",
    "sampling_ratio",
    "trajectory_advantages",
    "turn_group_advantages",
    "value_differences",
]
