"""The mathematics of credit: functions from tensors to tensors, a family of estimators per module.

A result has the floating-point dtype of the numbers that it is computed from, torch's default one for integers and
booleans. Entries outside a mask are ignored, and 0 in a result.
"""

from hf_credit.credit.agreement import disagreement, sure_share
from hf_credit.credit.answers import information_gain_advantages, log_ratio_advantages
from hf_credit.credit.counterfactual import (
    Moment,
    Moments,
    allocated_advantages,
    bonus_rewards,
    fused_scores,
    rated_rewards,
    shaped_contributions,
    standardised,
    trust,
)
from hf_credit.credit.critic_losses import balance_log_odds, class_weights, clipped_value_errors
from hf_credit.credit.doubly_robust import (
    continuation_ratio,
    contributions,
    doubly_robust_values,
    family_mean,
    sequential_values,
)
from hf_credit.credit.group_advantages import (
    branch_advantages,
    decoupled_advantages,
    group_advantages,
    group_in_group_advantages,
    nested_group_advantages,
    tree_group_advantages,
    turn_values,
)
from hf_credit.credit.leave_one_out import full_mean, group_scaled, leave_one_out, value_assisted
from hf_credit.credit.replay_allocation import replay_ratio
from hf_credit.credit.returns import (
    discounted_returns,
    generalized_advantages,
    pad_to_matrix,
    turn_rewards,
    value_differences,
)
from hf_credit.credit.rewards_and_costs import (
    Multipliers,
    RewardWeights,
    belief_reward,
    cost_advantages,
    harmonic_mean,
)
from hf_credit.credit.step_selection import StepSelector, inclusion_probabilities, pooled, systematic_sample
from hf_credit.credit.surrogate import (
    clipped_surrogate,
    next_entropy_coefficient,
    reference_divergence,
    sampling_ratio,
)
from hf_credit.credit.tokens import (
    redistributed_advantages,
    token_advantages,
    token_returns,
    turns_of_tokens,
    whitened,
)
from hf_credit.credit.trust_region import divergence, projected_logprobs, top_tokens
from hf_credit.credit.turns import (
    alive_advantages,
    all_turns_advantages,
    multi_turn_advantages,
    score_deltas,
    trajectory_advantages,
    turn_credit,
    turn_group_advantages,
)

__all__ = [
    "Moment", "Moments", "Multipliers", "RewardWeights", "StepSelector", "alive_advantages", "all_turns_advantages",
    "allocated_advantages", "balance_log_odds", "belief_reward", "bonus_rewards", "branch_advantages",
    "class_weights", "clipped_surrogate", "clipped_value_errors", "continuation_ratio",
    "contributions", "cost_advantages", "decoupled_advantages", "disagreement", "discounted_returns", "divergence",
    "doubly_robust_values", "family_mean", "full_mean", "fused_scores", "generalized_advantages",
    "group_advantages", "group_in_group_advantages", "group_scaled",
    "harmonic_mean", "inclusion_probabilities", "information_gain_advantages",
    "leave_one_out", "log_ratio_advantages", "multi_turn_advantages", "nested_group_advantages",
    "next_entropy_coefficient", "pad_to_matrix", "pooled", "projected_logprobs",
    "rated_rewards", "redistributed_advantages", "reference_divergence",
    "replay_ratio", "sampling_ratio", "score_deltas", "sequential_values", "shaped_contributions", "standardised",
    "sure_share", "systematic_sample", "token_advantages", "token_returns", "top_tokens", "trajectory_advantages",
    "tree_group_advantages", "trust", "turn_credit", "turn_group_advantages", "turn_rewards", "turn_values",
    "turns_of_tokens", "value_assisted", "value_differences", "whitened",
]  # fmt: skip
