"""MT-GRPO: turn rewards and outcomes, each normalised within the group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import multi_turn_advantages, pad_to_matrix
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import scored_group, scores, turn_to_decision_credit
from hf_credit.options import GroupSize, NotNegative, Options, Positive, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward Design", arxiv="2505.11821")


@dataclass(frozen=True, kw_only=True)
class MultiTurn(Options):
    """`multi_turn_advantages` of each instance. Failed episodes get no credit.

    Args:
        turn_scores: the source of turn rewards: the Interaction's `"reward"` for the step, or an oracle's
            `"verdict"`. They do not change the outcome. A turn whose advantage needs a missing verdict gets no credit.
        turn_weight: the weight of turn advantages; that of outcome advantages is 1.
        gamma: discount factor per turn, with `all_turns`.
        all_turns: whether every turn but the last has a turn advantage, or only the first.
        eps: added to standard deviations.
    """

    turn_scores: Literal["reward", "verdict"] = "reward"
    turn_weight: NotNegative = 1.0
    gamma: Share = 1.0
    all_turns: bool = False
    eps: Positive = 1e-4

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups", "verdicts"} if self.turn_scores == "verdict" else {"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        turns = [scores(collected.episodes[row], self.turn_scores) for row in rows]
        rewards, active = pad_to_matrix(
            [[math.nan if score is None else score for score in episode] for episode in turns]
        )
        advantages = multi_turn_advantages(
            rewards, outcomes, active, groups, self.turn_weight, self.gamma, self.all_turns, self.eps
        )
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


@with_parts
def mt_grpo(group_size: GroupSize = 8, estimator: MultiTurn = MultiTurn()) -> Method:
    """Returns the MT-GRPO method."""
    collector, evaluation = scored_group(group_size, estimator.turn_scores)
    return Method(name="mt_grpo", collector=collector, estimator=estimator, evaluation=evaluation, paper=PAPER)
