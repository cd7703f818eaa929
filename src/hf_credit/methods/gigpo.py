"""GiGPO: group-relative advantages of episodes of one task, plus those of their steps from equal states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import discounted_returns, group_in_group_advantages, pad_to_matrix
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import state_numbers, step_rewards, turn_to_decision_credit
from hf_credit.options import GroupSize, NotNegative, Options, Positive, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Group-in-Group Policy Optimization for LLM Agent Training", arxiv="2505.10978")


@dataclass(frozen=True, kw_only=True)
class GroupInGroup(Options):
    """`group_in_group_advantages`; the steps of an instance with equal anchors are a group.

    Failed episodes get no credit.

    Args:
        anchor: what equal states have in common, as in `state_numbers`: the `"observation"`, which is the last
            message; the whole `"context"`; or the Interaction's `"state"`.
        gamma: discount factor per step.
        weight: the weight of step advantages; that of episode advantages is 1.
        normalise: whether both are divided by their group's standard deviation; `mean_std_norm` of the public code.
        by_steps: whether an episode counts once per step in the statistics of episodes, as in the public code by
            default.
        eps: added to standard deviations.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    anchor: Literal["observation", "context", "state"] = "observation"
    gamma: Share = 0.95
    weight: NotNegative = 1.0
    normalise: bool = False
    by_steps: bool = False
    eps: Positive = 1e-6

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        rewards, active = pad_to_matrix([step_rewards(collected.episodes[row]) for row in rows])
        states = state_numbers(collected, rows, self.anchor, context)
        rollouts, _ = active.nonzero(as_tuple=True)
        advantages = torch.zeros_like(rewards)
        returns = discounted_returns(rewards, active, self.gamma)[active]
        anchors = torch.tensor(states, dtype=torch.long)
        settings: Any = (self.weight, self.normalise, self.by_steps, self.eps)
        advantages[active] = group_in_group_advantages(outcomes, groups, returns, anchors, rollouts, *settings)
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


@with_parts
def gigpo(group_size: GroupSize = 8, estimator: GroupInGroup = GroupInGroup()) -> Method:
    """Returns the GiGPO method."""
    return Method(name="gigpo", collector=Group(size=group_size), estimator=estimator, paper=PAPER)
