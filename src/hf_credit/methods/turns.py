"""Conversions between episodes and matrices of turns, for methods that credit turns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import fmean

from torch import Tensor

from hf_credit.collectors import Collector, Group, RolloutBatch, Single, Verified, continuation_values
from hf_credit.collectors.answers import ANSWER
from hf_credit.credit import generalized_advantages, pad_to_matrix, turn_rewards
from hf_credit.methods.base import DecisionCredit, mean_by_decision
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.method_context import MethodContext

Step = Sequence[Decision]


def step_rewards(episode: Episode) -> list[float]:
    """Returns the `turn_rewards` of an episode: they sum to its outcome."""
    return turn_rewards([step[0].reward for step in episode.steps], episode.outcome)


def scores(episode: Episode, source: str) -> list[float | None]:
    """Returns the score of each step; the mean over simultaneous decisions, `None` without a verdict.

    Args:
        source: `"reward"`, the Interaction's reward for a step, or `"verdict"`, the score of an oracle.
    """
    if source == "reward":
        return [step[0].reward for step in episode.steps]
    verdicts = [[one.verdict.score for one in step if one.verdict is not None] for step in episode.steps]
    return [sum(of_step) / len(of_step) if of_step else None for of_step in verdicts]


def step_tokens(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the number of tokens of the replies in each step of some trained rollouts, as `pad_to_matrix`."""
    episodes = [collected.episodes[row].steps for row in rows]
    return pad_to_matrix([[sum(len(one.action_ids) for one in step) for step in steps] for steps in episodes])


def ragged_advantages(
    rewards: Sequence[Sequence[float]], values: Sequence[Sequence[float]], gamma: float, lam: float
) -> list[list[float]]:
    """Returns `generalized_advantages` of ragged rows."""
    table, mask = pad_to_matrix(values)
    advantages = generalized_advantages(pad_to_matrix(rewards)[0], table, mask, gamma, lam).tolist()
    return [row[: len(own)] for row, own in zip(advantages, values, strict=True)]


def step_values(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the Monte Carlo value before each step of some trained rollouts, and its mask, as `pad_to_matrix`.

    Simultaneous decisions share one state, so their values are averaged, as far as they are known. A value is NaN if
    all continuations from its state failed.

    Args:
        rows: indices of trained rollouts that did not fail.
    """
    decision_values = continuation_values(collected)
    rest = [iter(decision_values[row] or []) for row in rows]
    return pad_to_matrix(
        [
            [
                fmean([value for value in own if not math.isnan(value)] or [math.nan])
                for own in ([next(values) for _ in step] for step in collected.episodes[row].steps)
            ]
            for row, values in zip(rows, rest, strict=True)
        ]
    )


def turn_to_decision_credit(
    collected: RolloutBatch, rows: Sequence[int], advantages: Tensor
) -> dict[str, DecisionCredit]:
    """Returns the credit of decisions, by id: the advantage of their turn.

    Args:
        rows: indices of trained rollouts; the others get no credit.
        advantages: of shape (rows, turns); NaN where unknown, which is no credit.
    """
    return credit_of_steps([collected.episodes[row].steps for row in rows], advantages)


def credit_of_steps(steps: Sequence[Sequence[Step]], advantages: Tensor) -> dict[str, DecisionCredit]:
    """Returns the credit of decisions, by id: the advantage of their step.

    Args:
        steps: some steps of each rollout.
        advantages: of shape (rollouts, longest); NaN where unknown, which is no credit.
    """
    return mean_by_decision(
        (decision, None if math.isnan(value) else value)
        for own, values in zip(steps, advantages.tolist(), strict=True)
        for step, value in zip(own, values, strict=False)
        for decision in step
    )


def answer_logprobs(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Sequence[Sequence[Step]], Tensor, Tensor]:
    """Returns the steps of some trained rollouts with the log-probability of the right answer before them, which is a
    mean over simultaneous decisions, and these log-probabilities, as `pad_to_matrix`.

    Args:
        rows: indices of trained rollouts, collected by `Answers`.
    """
    episodes = [collected.episodes[row] for row in rows]
    steps = [[step for step in one.steps if any(ANSWER in decision.extras for decision in step)] for one in episodes]
    values = [[fmean(one.extras[ANSWER] for one in step if ANSWER in one.extras) for step in own] for own in steps]
    return steps, *pad_to_matrix(values)


def state_numbers(collected: RolloutBatch, rows: Sequence[int], anchor: str, context: MethodContext) -> list[int]:
    """Returns a number for each step of some trained rollouts, equal for steps of one instance from equal states.

    Args:
        anchor: two states are equal if the event types and anchors of their decisions are: the `"observation"`, which
            is the last message; the `"context"`, in tokens; or the `"state"` of the Interaction, which must be
            hashable.
    """

    def anchor_of(decision: Decision) -> Hashable:
        if anchor == "observation":
            requests = context.interaction.pending(decision.state)
            return next(str(one.messages[-1]["content"]) for one in requests if one.event == decision.event)
        return decision.context_ids if anchor == "context" else decision.state

    numbers: dict[Hashable, int] = {}
    return [
        numbers.setdefault(
            (collected.instances[row], tuple((one.event, anchor_of(one)) for one in step)), len(numbers)
        )
        for row in rows
        for step in collected.episodes[row].steps
    ]


def scored_group(size: int, source: str) -> tuple[Collector, Collector]:
    """Returns the collector of groups with scored turns, and that of evaluations.

    Args:
        source: as in `scores`.
    """
    group = Group(size=size)
    return (group, Single()) if source == "reward" else (Verified(inner=group), Verified(required=False))
