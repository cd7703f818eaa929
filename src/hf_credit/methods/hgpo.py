"""HGPO: a step is compared with the steps from equal states, and more with those of equal earlier states.

A[i, t] = sum_k w[k] A_k[i, t] / sum_k w[k],    w[k] = (k + offset)^alpha    (arXiv:2602.22817, eq. 7)
A_k = return from t - mean of the returns from equal states with k equal ones before
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from hf_credit.boundary import Range
from hf_credit.credit import discounted_returns, nested_group_advantages
from hf_credit.credit.leave_one_out import number_of_others
from hf_credit.methods.base import INPUTS, paper
from hf_credit.methods.groups import OfTurns, Turns, of_groups, state_numbers
from hf_credit.options import NotNegative, Positive, Share
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Hierarchy-of-Groups Policy Optimization for Long-Horizon Agentic Tasks", arxiv="2602.22817")


@dataclass(frozen=True, kw_only=True)
class NestedGroups(OfTurns):
    """`nested_group_advantages`; the steps of an instance with equal anchors, and equal ones before them, are groups.

    Failed episodes get no credit. There is no advantage of the whole episode besides that of the step.

    Args:
        repeats: as in `gigpo`.
        anchor: what equal states have in common, as in `gigpo`.
        history: K, the largest number of earlier states that are compared.
        gamma: discount factor per step.
        alpha: exponent of the weight of a level; with 0 all levels weigh the same.
        offset: added to the number of earlier states in a weight: 1 in the paper, 2 in its public code.
        normalise: whether the advantages of a level are divided by their group's standard deviation.
        eps: added to standard deviations.
    """

    repeats: bool = False
    anchor: Literal["observation", "context", "state"] = "observation"
    history: Annotated[int, Range(0)] = 2
    gamma: Share = 0.95
    alpha: NotNegative = 1.0
    offset: Positive = 1.0
    normalise: bool = True
    eps: Positive = 1e-6

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        rewards, active = played.rewards()
        states = iter(state_numbers(played, self.anchor, context))
        numbers: dict[tuple[int, ...], int] = {}
        anchors = []
        for turns in active.sum(dim=1).tolist():
            of_episode = list(itertools.islice(states, turns))
            for turn in range(turns):
                seen = [tuple(of_episode[turn - level : turn + 1]) for level in range(min(turn, self.history) + 1)]
                known = [numbers.setdefault(one, len(numbers)) for one in seen]
                anchors.append([*known, *[-1] * (self.history + 1 - len(known))])
        table = torch.tensor(anchors, dtype=torch.long).reshape(-1, self.history + 1)
        returns = discounted_returns(rewards, active, self.gamma)[active]
        advantages = torch.zeros_like(rewards)
        episodes = torch.arange(len(returns))[:, None] if self.repeats else played.visits()[active]
        context.mean(f"{INPUTS}states that recur", (number_of_others(table[:, 0], episodes) > 0).tolist())
        settings = self.alpha, self.offset, self.normalise, self.eps, episodes
        advantages[active] = nested_group_advantages(returns, table, *settings)
        return advantages


hgpo = of_groups("hgpo", NestedGroups(), PAPER)
