"""VPR: process rewards of turns, normalised over the trajectories that are active at the turn (the paper VPR)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from hf_credit.collectors import Continuations, RolloutBatch, Verified
from hf_credit.credit import discounted_returns, trajectory_advantages, turn_group_advantages, value_differences
from hf_credit.methods import base
from hf_credit.methods.base import Credit, Method, paper
from hf_credit.methods.turns import pad_to_matrix, step_values, turn_to_decision_credit
from hf_credit.options import Count, Options, Share, with_parts
from hf_credit.oracles import OracleLike
from hf_credit.rollouts import Ending
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Verifiable Process Rewards for Agentic Reasoning", url="https://github.com/thu-nics/VPR")

TurnRewards = Sequence[Sequence[float | None]]
"""The reward of each turn of each trained episode; `None` without a reward, NaN if it is unknown."""


@dataclass(frozen=True, kw_only=True)
class TurnGroup(Options):
    """Discounted returns of turn rewards, normalised over all trajectories of the update at the same turn (eq. 4).

    A turn whose return includes an unknown reward gets no credit and is not compared: after a failure of the oracle or
    the world, with `gamma` above 0 also the turns before it.

    Args:
        gamma: discount factor per turn.
        min_active: minimum number of active trajectories at a turn for statistics of this turn alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"verdicts"})

    gamma: Share = 0.0
    min_active: Count = 4

    def rewards(self, collected: RolloutBatch) -> TurnRewards:
        """Returns the scores of the oracle's verdicts, and for a failed episode NaN for the rest that it lacks."""
        return [
            [
                *(math.nan if decision.verdict is None else decision.verdict.score for decision in episode.decisions),
                *([math.nan] if episode.ending == Ending.ERROR else []),
            ]
            for episode in collected.episodes
        ]

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        turn_rewards = self.rewards(collected)
        return _credit(collected, turn_rewards, self._advantages(turn_rewards, context))

    def _advantages(self, turn_rewards: TurnRewards, context: MethodContext) -> Tensor:
        rewards, active, local = _of_all_processes(turn_rewards, context)
        known = rewards[active & ~rewards.isnan()]
        if len(known):
            context.log("process_reward/mean", known.mean().item())
            context.log("process_reward/std", known.std(correction=0).item())
        returns = discounted_returns(rewards, active, self.gamma)
        unknown = returns.isnan()
        return turn_group_advantages(returns, active & ~unknown, self.min_active).masked_fill(unknown, math.nan)[local]


@dataclass(frozen=True, kw_only=True)
class ValueDifferences(TurnGroup):
    """`TurnGroup` with changes of the state's Monte Carlo value as rewards (the MC-PR baseline, section 3.1).

    A turn is a step: simultaneous decisions share one state, and the reward.

    Args:
        gamma: discount factor per turn.
        min_active: minimum number of active trajectories at a turn for statistics of this turn alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"continuations"})

    def rewards(self, collected: RolloutBatch) -> TurnRewards:
        """Returns V(s') - V(s) of each step, with the outcome as the last V(s'); without failed episodes.

        It is NaN if one of the values is unknown (`continuation_values`).
        """
        rows = base.without_errors(collected)
        values, active = step_values(collected, rows)
        changes = value_differences(values, base.outcomes_of(collected, rows)[0], active)
        return [row[mask].tolist() for row, mask in zip(changes, active, strict=True)]

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        advantages = self._advantages(self.rewards(collected), context)
        return Credit(decisions=turn_to_decision_credit(collected, base.without_errors(collected), advantages))


@dataclass(frozen=True, kw_only=True)
class TrajectoryOutcome:
    """Every decision of an episode gets its outcome, normalised over the update (eq. 1)."""

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        outcomes: TurnRewards = [
            [None if episode.ending == Ending.ERROR else episode.outcome] * len(episode.decisions)
            for episode in collected.episodes
        ]
        rewards, active, local = _of_all_processes(outcomes, context)
        # The outcome is the reward of every turn, and every trajectory has a first turn.
        advantages = trajectory_advantages(rewards[:, 0], active[:, 0])[:, None].expand_as(rewards)
        return _credit(collected, outcomes, advantages[local])


@with_parts
def verifiable_process(estimator: TurnGroup = TurnGroup(), oracle: OracleLike | None = None) -> Method:
    """VPR: an oracle's verdicts as rewards, normalised over the trajectories active at the turn (the paper VPR).

    Args:
        oracle: the source of verdicts; the environment's oracle if `None`.
    """
    collector, evaluation = Verified(oracle=oracle), Verified(oracle=oracle, required=False)
    return Method(
        name="verifiable_process", collector=collector, estimator=estimator, evaluation=evaluation, paper=PAPER
    )


@with_parts
def outcome_reward(oracle: OracleLike | None = None) -> Method:
    """The OR baseline of paper VPR: every decision has its trajectory's advantage.

    Args:
        oracle: the source of verdicts, for metrics only; the environment's oracle if `None`.
    """
    collector = Verified(oracle=oracle, required=False)
    return Method(name="outcome_reward", collector=collector, estimator=TrajectoryOutcome(), evaluation=collector)


@with_parts
def mc_process_reward(
    rollouts: Count = 100,
    template_kwargs: Mapping[str, Any] | None = None,
    oracle: OracleLike | None = None,
    estimator: ValueDifferences = ValueDifferences(),
) -> Method:
    """The MC-PR baseline of paper VPR: process rewards from rollouts of the policy.

    Args:
        rollouts: number of rollouts from the state before each decision; 100 in the paper.
        template_kwargs: chat template settings of the rollouts; the recorded tokens are continued if `None`.
        oracle: the source of verdicts, for metrics only; the environment's oracle if `None`.
    """
    inner = Verified(oracle=oracle, required=False)
    collector = Continuations(rollouts=rollouts, inner=inner, template_kwargs=template_kwargs)
    return Method(name="mc_process_reward", collector=collector, estimator=estimator, evaluation=inner)


def _of_all_processes(turn_rewards: TurnRewards, context: MethodContext) -> tuple[Tensor, Tensor, slice]:
    """The turn rewards of all processes as a matrix, its mask, and the rows of this process in it."""
    rows, local = base.all_gather_with_slice(turn_rewards, context)
    rewards, active = pad_to_matrix(rows)
    return rewards, active, local


def _credit(collected: RolloutBatch, turn_rewards: TurnRewards, advantages: Tensor) -> Credit:
    """Credit from a matrix of advantages; decisions without a known one get none."""
    return Credit(
        decisions=base.mean_by_decision(
            (decision, None if reward is None or math.isnan(value) else value)
            for episode, rewards, values in zip(collected.episodes, turn_rewards, advantages.tolist(), strict=True)
            for decision, reward, value in zip(episode.decisions, rewards, values, strict=False)
        )
    )
