"""GiGPO: group-relative advantages of episodes of one task, plus those of their steps from equal states.

A[i, t] = A_E[i] + weight A_S[i, t]    (arXiv:2505.10978)
A_E = R - mean_group R,    A_S = return from t - mean of the returns from equal states
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from hf_credit.credit import discounted_returns, group_in_group_advantages
from hf_credit.credit.leave_one_out import number_of_others
from hf_credit.methods.base import INPUTS, paper
from hf_credit.methods.groups import OfTurns, Turns, of_groups, state_numbers
from hf_credit.options import NotNegative, Positive, Share
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Group-in-Group Policy Optimization for LLM Agent Training", arxiv="2505.10978")


@dataclass(frozen=True, kw_only=True)
class GroupInGroup(OfTurns):
    """`group_in_group_advantages`; the steps of an instance with equal anchors are a group.

    Failed episodes get no credit.

    Args:
        repeats: whether the mean of a step has the other steps of its own episode from that state, as in the paper.
            They depend on its action, which biases the credit where a state recurs.
        anchor: what equal states have in common, as in `state_numbers`: the `"observation"`, which is the last
            message; the whole `"context"`; or the Interaction's `"state"`.
        gamma: discount factor per step.
        weight: the weight of step advantages; that of episode advantages is 1.
        normalise: whether both are divided by their group's standard deviation; `mean_std_norm` of the public code.
        by_steps: whether an episode counts once per step in the statistics of episodes, as in the public code by
            default.
        eps: added to standard deviations.
    """

    repeats: bool = False
    anchor: Literal["observation", "context", "state"] = "observation"
    gamma: Share = 0.95
    weight: NotNegative = 1.0
    normalise: bool = False
    by_steps: bool = False
    eps: Positive = 1e-6

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        rewards, active = played.rewards()
        rollouts, _ = active.nonzero(as_tuple=True)
        returns = discounted_returns(rewards, active, self.gamma)[active]
        anchors = torch.tensor(state_numbers(played, self.anchor, context), dtype=torch.long)
        episodes = torch.arange(len(returns))[:, None] if self.repeats else played.visits()[active]
        settings: Any = (self.weight, self.normalise, self.by_steps, self.eps, episodes)
        context.mean(f"{INPUTS}states that recur", (number_of_others(anchors, episodes) > 0).tolist())
        advantages = torch.zeros_like(rewards)
        advantages[active] = group_in_group_advantages(
            played.outcomes, played.groups, returns, anchors, rollouts, *settings
        )
        return advantages


gigpo = of_groups("gigpo", GroupInGroup(), PAPER)
