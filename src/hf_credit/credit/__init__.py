"""Credit: tensors in, tensors out. One estimator a module."""

from hf_credit.credit.clipped_values import clipped_value_errors, clipped_value_loss
from hf_credit.credit.generalized_advantages import generalized_advantages
from hf_credit.credit.group_advantages import group_advantages, tree_group_advantages
from hf_credit.credit.group_in_group import group_in_group_advantages
from hf_credit.credit.grouping import group_scaled, group_spread, value_assisted
from hf_credit.credit.importance import sampling_ratio
from hf_credit.credit.leave_one_out import full_mean, leave_one_out
from hf_credit.credit.multi_turn import multi_turn_advantages
from hf_credit.credit.returns import discounted_returns, value_differences
from hf_credit.credit.token_returns import token_returns
from hf_credit.credit.tokens import token_advantages
from hf_credit.credit.tree_values import branch_advantages
from hf_credit.credit.turn_baselines import alive_advantages, all_turns_advantages
from hf_credit.credit.turn_credit import score_deltas, turn_credit
from hf_credit.credit.turn_group import trajectory_advantages, turn_group_advantages
from hf_credit.credit.whitening import whitened

__all__ = [
    "alive_advantages",
    "all_turns_advantages",
    "branch_advantages",
    "clipped_value_errors",
    "clipped_value_loss",
    "discounted_returns",
    "full_mean",
    "generalized_advantages",
    "group_advantages",
    "group_in_group_advantages",
    "group_scaled",
    "group_spread",
    "leave_one_out",
    "multi_turn_advantages",
    "sampling_ratio",
    "score_deltas",
    "token_advantages",
    "token_returns",
    "trajectory_advantages",
    "tree_group_advantages",
    "turn_credit",
    "turn_group_advantages",
    "value_assisted",
    "value_differences",
    "whitened",
]
