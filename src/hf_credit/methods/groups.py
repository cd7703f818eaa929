"""What methods that compare the episodes of a task row have in common: a group to play, and credit from its numbers.

An estimator of turns reads numbers of them from matrices with a row for each episode (`Turns`), and its formula
(`OfTurns.advantages`) returns such a matrix, which `Turns.credit` maps back to decisions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from statistics import fmean
from typing import Any, ClassVar, Literal

from torch import Tensor

from hf_credit.collectors import Answers, Collector, Group, RolloutBatch, Single, Verified, continuation_values
from hf_credit.collectors.answers import ANSWER
from hf_credit.credit import generalized_advantages, pad_to_matrix, score_deltas, turn_rewards
from hf_credit.methods.base import (
    INPUTS,
    Credit,
    Method,
    compare_outcomes,
    mean_by_decision,
    outcomes_of,
    verdict_score,
    without_errors,
)
from hf_credit.methods.verdicts_first import OutcomeWeight, weighed
from hf_credit.options import GroupSize, Options, with_parts
from hf_credit.oracles import OracleLike
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.rollouts.rows import DecisionCredit

Step = Sequence[Decision]


class OfGroups(Options):
    """An estimator that compares several episodes of each task."""

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups"})


class OfEpisodes(OfGroups, ABC):
    """An estimator whose formula is one of episodes: `advantages`. Failed episodes are not compared.

    Class attributes:
        over_processes: whether the formula is given the episodes of all processes.
    """

    over_processes: ClassVar[bool] = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        everywhere = context if self.over_processes else None
        return Credit(decisions=compare_outcomes(collected, self.advantages, everywhere))

    @abstractmethod
    def advantages(self, outcomes: Tensor, groups: Tensor, /) -> Tensor:
        """Returns the advantage of each episode from their outcomes and instances, each of shape (episodes,)."""


def step_rewards(episode: Episode) -> list[float]:
    """Returns the `turn_rewards` of an episode: they sum to what it earned of its outcome."""
    return turn_rewards([step[0].reward for step in episode.steps], episode.outcome - episode.earned)


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

    A turn is a step, with the steps of only `TrainedRoles.untrained` roles that follow it. Decisions of a step are
    simultaneous.

    Args:
        rows: the indices of the rollouts among the trained ones.

    Attributes:
        episodes, outcomes, groups: the episode, the outcome and the instance of each row.
        turns: the turns of each row, as the places of their steps in the episode.
        steps: the first step of each turn.
    """

    def __init__(self, collected: RolloutBatch, rows: Sequence[int]) -> None:
        self.collected, self.rows = collected, rows
        self.episodes = [collected.episodes[row] for row in rows]
        self.outcomes, self.groups = outcomes_of(collected, rows)
        self.turns = [_turns(episode.steps) for episode in self.episodes]
        self.steps: Sequence[Sequence[Step]] = [
            [episode.steps[turn.start] for turn in own] for episode, own in zip(self.episodes, self.turns, strict=True)
        ]

    def table(self, of: Callable[[Step], float | None]) -> tuple[Tensor, Tensor]:
        """Returns a number of each turn, and its mask."""
        return pad_to_matrix([list(map(of, own)) for own in self.steps])

    def rewards(self) -> tuple[Tensor, Tensor]:
        """Returns the sum of the `step_rewards` of each turn, and its mask."""
        return self.of_steps(step_rewards, sum)

    def of_steps(
        self, numbers: Callable[[Episode], Sequence[float]], of_turn: Callable[[Sequence[float]], float]
    ) -> tuple[Tensor, Tensor]:
        """Returns a number of each turn, from those of its steps, and its mask."""
        known = [(numbers(episode), own) for episode, own in zip(self.episodes, self.turns, strict=True)]
        return pad_to_matrix([[of_turn(row[turn.start : turn.stop]) for turn in own] for row, own in known])

    def tokens(self) -> tuple[Tensor, Tensor]:
        """Returns the number of tokens of the policy's replies in each turn, and its mask."""
        return self.table(lambda step: sum(len(one.action_ids) for one in step if not one.observed))

    def visits(self) -> Tensor:
        """Returns the rows that contain each turn, of shape (rows, turns, most rows of a turn), filled up with -1."""
        return visits([[step[0].id for step in own] for own in self.steps])

    def values(self) -> tuple[Tensor, Tensor]:
        """Returns the Monte Carlo value before each turn, and its mask; of rollouts that did not fail.

        The values of simultaneous decisions are averaged, as far as they are known. A value is NaN if all
        continuations from its state failed.
        """
        known = continuation_values(self.collected)
        return self.table(lambda step: fmean([known[one.id] for one in step if one.id in known] or [math.nan]))

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


def visits(ids: Sequence[Sequence[str]]) -> Tensor:
    """Returns the rows that contain each turn, as `Turns.visits`, from the ids of the turns of each row."""
    rows: dict[str, list[int]] = {}
    for row, own in enumerate(ids):
        for name in own:
            rows.setdefault(name, []).append(row)
    turns = max([len(own) for own in ids] + [1])
    table = [[rows[name] for name in own] + [[-1]] * (turns - len(own)) for own in ids]
    return filled_up([of_turn for own in table for of_turn in own]).unflatten(0, (len(ids), turns))


def _turns(steps: Sequence[Step]) -> list[range]:
    """The places of the steps of each turn."""
    first = [place for place, step in enumerate(steps) if not all(one.observed for one in step)]
    return [range(*turn) for turn in pairwise([*first, len(steps)])]


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


class OfTurns(OfGroups, ABC):
    """An estimator whose formula is one of turns: `advantages`, in the order of the matrices of `Turns`.

    Class attributes:
        turns: the turns with credit.
        rows: maps a batch to the indices of the rollouts that are compared; others get no credit.
    """

    turns: ClassVar[type[Turns]] = Turns
    rows = staticmethod(without_errors)

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        played = self.turns(collected, self.rows(collected))
        return Credit(decisions=played.credit(self.advantages(played, context)))

    @abstractmethod
    def advantages(self, played: Any, context: MethodContext) -> Tensor:
        """Returns the advantage of each turn, of shape (rows, turns); NaN where unknown, which is no credit."""


@dataclass(frozen=True, kw_only=True)
class OfVerdicts(OfGroups):
    """An estimator whose rewards can be verdicts, and the weight of `VerdictsFirst`."""

    outcome_weight: OutcomeWeight = 0.0


class OfScores(OfVerdicts):
    """An estimator with rewards of turns, from the source that its option `turn_scores` names.

    A reward is an increment: rewards add up to a part of the outcome. A score is a level, and no part of the outcome.
    """

    turn_scores: Literal["reward", "score", "verdict"]
    compares_turns: ClassVar[bool] = False  # in groups, where all have one score before the first

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"verdicts"} if self.turn_scores == "verdict" else set())

    def scores(self, played: Turns, context: MethodContext) -> tuple[Tensor, Tensor]:
        """Returns the reward, the change of the score, or the verdict's score of each turn, and their mask."""
        if self.turn_scores == "verdict":
            found, there = played.table(verdict_score)
            context.mean(f"{INPUTS}verdicts", (there & ~found.isnan()).any(dim=1).tolist())
        else:
            of_turn = sum if self.turn_scores == "reward" else itemgetter(-1)  # a score is that of the state after it
            found, there = played.of_steps(lambda one: [step[0].reward for step in one.steps], of_turn)
            on_the_way = (found[:, :-1] != 0) & there[:, 1:]
            context.mean(f"{INPUTS}{self.turn_scores}s before the last turn", on_the_way.any(dim=1).tolist())
        return (score_deltas(found, there, self.compares_turns) if self.turn_scores == "score" else found), there

    def beside(self, counted: Tensor, outcomes: Tensor) -> Tensor:
        """Returns outcomes without the rewards of turns that count by themselves, of shape (rows, turns)."""
        return outcomes - counted.sum(dim=1) if self.turn_scores == "reward" else outcomes


def of_groups(
    name: str, estimator: Options, paper: Mapping[str, str] | None = None, summary: str = "", **settings: Any
) -> Callable[..., Method]:
    """Returns the factory of a method that plays a group of episodes for each task row.

    Its options are the size of the group and those of the estimator. Where the estimator needs verdicts or the
    probability of the right answer, the group is played within the collector that gives them.

    Args:
        estimator: with the defaults of its options.
        summary: one sentence about the method, if its module has several.
        settings: further fields of `Method`.
    """

    def with_oracle(group_size: GroupSize = 8, estimator: Any = estimator, oracle: OracleLike | None = None) -> Method:
        needs = getattr(estimator, "needs", ())
        if oracle is not None and "verdicts" not in needs:
            raise ValueError(
                f"{name} must take verdicts to have an oracle, got {oracle!r}; choose them as its scores."
            )
        collector: Collector = Group(size=group_size)
        evaluation: Collector = Single()
        if "verdicts" in needs:
            collector, evaluation = Verified(inner=collector, oracle=oracle), Verified(required=False)
        elif "answers" in needs:
            collector = Answers(inner=collector)
        parts = {"collector": collector, "evaluation": evaluation, "paper": paper or {}, **settings}
        weight = estimator.outcome_weight if isinstance(estimator, OfVerdicts) else 0.0
        return Method(name=name, **weighed(estimator, weight, grouped=True), **parts)

    def without(group_size: GroupSize = 8, estimator: Any = estimator) -> Method:
        return with_oracle(group_size, estimator)

    factory = with_parts(with_oracle if isinstance(estimator, OfVerdicts) else without)
    factory.__name__ = factory.__qualname__ = name
    factory.__module__ = type(estimator).__module__
    factory.__doc__ = summary or f"Returns the method `{name}`."
    return factory
