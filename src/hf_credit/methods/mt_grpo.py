"""MT-GRPO: turn rewards and outcomes, each normalised within the group.

A[1] = z(R) + turn_weight z(r[1]),    A[t] = z(R) for later turns,    z by the group    (arXiv:2505.11821)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from hf_credit.credit import multi_turn_advantages
from hf_credit.methods.base import paper
from hf_credit.methods.groups import OfScores, OfTurns, Turns, of_groups
from hf_credit.options import NotNegative, Positive, Share
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward Design", arxiv="2505.11821")


@dataclass(frozen=True, kw_only=True)
class MultiTurn(OfScores, OfTurns):
    """`multi_turn_advantages` of each instance. Failed episodes get no credit.

    Args:
        turn_scores: the source of turn rewards: the Interaction's `"reward"` for the step, which then does not count
            in the outcome; the change of a `"score"`, if the Interaction's number for a step is a score of the state
            after it; or an oracle's `"verdict"`. A turn whose advantage needs a missing verdict gets no credit.
        turn_weight: the weight of turn advantages; that of outcome advantages is 1.
        gamma: discount factor per turn, with `all_turns`.
        all_turns: whether every turn but the last has a turn advantage, or only the first.
        eps: added to standard deviations.
        outcome_weight: with verdicts, the weight of outcome advantages alone, as for `verifiable_process`.
    """

    revision: ClassVar[int] = 3
    compares_turns: ClassVar[bool] = True

    turn_scores: Literal["reward", "score", "verdict"] = "reward"
    turn_weight: NotNegative = 1.0
    gamma: Share = 1.0
    all_turns: bool = False
    eps: Positive = 1e-4

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        rewards, active = self.scores(played, context)
        before = active.sum(dim=1, keepdim=True) - 1 if self.all_turns else 1
        outcomes = self.beside(rewards * (torch.arange(rewards.shape[1]) < before), played.outcomes)
        settings = self.turn_weight, self.gamma, self.all_turns, self.eps
        return multi_turn_advantages(rewards, outcomes, active, played.groups, *settings)


mt_grpo = of_groups("mt_grpo", MultiTurn(), PAPER)
