"""Conversions between episodes and matrices of turns, for methods that credit turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from statistics import fmean

from torch import Tensor

from hf_credit.collectors import RolloutBatch, continuation_values
from hf_credit.collectors.answers import ANSWER
from hf_credit.credit import generalized_advantages, pad_to_matrix, turn_rewards
from hf_credit.methods.base import mean_by_decision, outcomes_of
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.rollouts.rows import DecisionCredit

Step = Sequence[Decision]


def step_rewards(episode: Episode) -> list[float]:
    """Returns the `turn_rewards` of an episode: they sum to its outcome."""
    return turn_rewards([step[0].reward for step in episode.steps], episode.outcome)


def score(step: Step, source: str) -> float:
    """Returns a number of a step; the mean over simultaneous decisions, NaN without a verdict.

    Args:
        source: `"reward"`, the Interaction's reward for the step; `"score"`, where this is a score of the state after
            it; or `"verdict"`, the score of an oracle.
    """
    if source != "verdict":
        return step[0].reward
    return fmean([one.verdict.score for one in step if one.verdict is not None] or [math.nan])


def ragged_advantages(
    rewards: Sequence[Sequence[float]], values: Sequence[Sequence[float]], gamma: float, lam: float
) -> list[list[float]]:
    """Returns `generalized_advantages` of ragged rows."""
    table, mask = pad_to_matrix(values)
    advantages = generalized_advantages(pad_to_matrix(rewards)[0], table, mask, gamma, lam).tolist()
    return [row[: len(own)] for row, own in zip(advantages, values, strict=True)]


def filled_up(numbers: Sequence[Sequence[int]]) -> Tensor:
    """Returns ragged rows of numbers as a matrix, filled up with -1."""
    values, known = pad_to_matrix(numbers)
    return values.masked_fill(~known, -1).long()


class Turns:
    """Some trained rollouts, in matrices with a row for each and a column for each of its turns, as `pad_to_matrix`.

    Simultaneous decisions share one turn.

    Args:
        rows: the indices of the rollouts among the trained ones.

    Attributes:
        episodes, outcomes, groups: the episode, the outcome and the instance of each row.
        steps: the turns of each row.
    """

    def __init__(self, collected: RolloutBatch, rows: Sequence[int]) -> None:
        self.collected, self.rows = collected, rows
        self.episodes = [collected.episodes[row] for row in rows]
        self.outcomes, self.groups = outcomes_of(collected, rows)
        self.steps: Sequence[Sequence[Step]] = [episode.steps for episode in self.episodes]

    def table(self, of: Callable[[Step], float | None]) -> tuple[Tensor, Tensor]:
        """Returns a number of each turn, and its mask."""
        return pad_to_matrix([list(map(of, own)) for own in self.steps])

    def rewards(self) -> tuple[Tensor, Tensor]:
        """Returns the `step_rewards` of each row, and their mask."""
        return pad_to_matrix([step_rewards(episode) for episode in self.episodes])

    def tokens(self) -> tuple[Tensor, Tensor]:
        """Returns the number of tokens of the replies in each turn, and its mask."""
        return self.table(lambda step: sum(len(one.action_ids) for one in step))

    def visits(self) -> Tensor:
        """Returns the rows that contain each turn, of shape (rows, turns, most rows of a turn), filled up with -1."""
        rows: dict[str, list[int]] = {}
        for row, own in enumerate(self.steps):
            for step in own:
                rows.setdefault(step[0].id, []).append(row)
        turns = max([len(own) for own in self.steps] + [1])
        table = [[rows[step[0].id] for step in own] + [[-1]] * (turns - len(own)) for own in self.steps]
        return filled_up([of_turn for own in table for of_turn in own]).unflatten(0, (len(self.steps), turns))

    def values(self) -> tuple[Tensor, Tensor]:
        """Returns the Monte Carlo value before each turn, and its mask; of rollouts that did not fail.

        The values of simultaneous decisions are averaged, as far as they are known. A value is NaN if all
        continuations from its state failed.
        """
        known = continuation_values(self.collected)
        rest = (value for row in self.rows for value in known[row] or ())
        return self.table(
            lambda step: fmean([value for value in islice(rest, len(step)) if not math.isnan(value)] or [math.nan])
        )

    def credit(self, advantages: Tensor) -> dict[str, DecisionCredit]:
        """Returns the credit of decisions, by id: the advantage of their turn.

        Args:
            advantages: of shape (rows, turns); NaN where unknown, which is no credit.
        """
        return mean_by_decision(
            (decision, None if math.isnan(value) else value)
            for own, values in zip(self.steps, advantages.tolist(), strict=True)
            for step, value in zip(own, values, strict=False)
            for decision in step
        )


class AnsweredTurns(Turns):
    """The turns before which the probability of the right answer is known, of rollouts collected by `Answers`."""

    def __init__(self, collected: RolloutBatch, rows: Sequence[int]) -> None:
        super().__init__(collected, rows)
        self.steps = [[step for step in own if any(ANSWER in one.extras for one in step)] for own in self.steps]

    def logprobs(self) -> tuple[Tensor, Tensor]:
        """Returns the log-probability of the right answer before each turn, a mean over simultaneous decisions."""
        return self.table(lambda step: fmean(one.extras[ANSWER] for one in step if ANSWER in one.extras))


def state_numbers(played: Turns, anchor: str, context: MethodContext) -> list[int]:
    """Returns a number for each turn, row by row, equal for those of one instance from equal states.

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
            (played.collected.instances[row], tuple((one.event, anchor_of(one)) for one in step)), len(numbers)
        )
        for row, own in zip(played.rows, played.steps, strict=True)
        for step in own
    ]
