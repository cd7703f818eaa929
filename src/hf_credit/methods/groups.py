"""What methods that compare the episodes of a task row have in common: a group to play, and credit of its turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from hf_credit.collectors import Answers, Collector, Group, RolloutBatch, Single, Verified
from hf_credit.credit import score_deltas
from hf_credit.methods.base import INPUTS, Credit, Method, compare_outcomes, without_errors
from hf_credit.methods.turns import Turns, score
from hf_credit.methods.verdicts_first import OutcomeWeight, weighed
from hf_credit.options import GroupSize, Options, with_parts
from hf_credit.rollouts.method_context import MethodContext


class OfGroups(Options):
    """An estimator that compares several episodes of each task."""

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups"})


@dataclass(frozen=True, kw_only=True)
class OfVerdicts(OfGroups):
    """An estimator whose rewards can be verdicts, and the weight of `VerdictsFirst`."""

    outcome_weight: OutcomeWeight = 0.0


class OfScores(OfVerdicts):
    """An estimator with rewards of turns, from the source that its option `turn_scores` names.

    A reward is an increment: rewards add up to a part of the outcome. A score is a level, and beside the outcome.
    """

    turn_scores: Literal["reward", "score", "verdict"]

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"verdicts"} if self.turn_scores == "verdict" else set())

    def scores(self, played: Turns, context: MethodContext) -> tuple[Tensor, Tensor]:
        """Returns the reward, the change of the score, or the verdict's score of each turn, and their mask."""
        found, there = played.table(lambda step: score(step, self.turn_scores))
        if self.turn_scores == "verdict":
            context.mean(f"{INPUTS}verdicts", (there & ~found.isnan()).any(dim=1).tolist())
        else:
            on_the_way = (found[:, :-1] != 0) & there[:, 1:]
            context.mean(f"{INPUTS}{self.turn_scores}s before the last turn", on_the_way.any(dim=1).tolist())
        return (score_deltas(found, there) if self.turn_scores == "score" else found), there

    def beside(self, counted: Tensor, outcomes: Tensor) -> Tensor:
        """Returns outcomes without the rewards of turns that count by themselves, of shape (rows, turns)."""
        return outcomes - counted.sum(dim=1) if self.turn_scores == "reward" else outcomes


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

    @with_parts
    def factory(group_size: GroupSize = 8, estimator: Any = estimator) -> Method:
        needs = getattr(estimator, "needs", ())
        collector: Collector = Group(size=group_size)
        evaluation: Collector = Single()
        if "verdicts" in needs:
            collector, evaluation = Verified(inner=collector), Verified(required=False)
        elif "answers" in needs:
            collector = Answers(inner=collector)
        own = {"collector": collector, "evaluation": evaluation, "paper": paper or {}, **settings}
        weight = estimator.outcome_weight if isinstance(estimator, OfVerdicts) else 0.0
        return Method(name=name, **weighed(estimator, weight, grouped=True), **own)

    factory.__name__ = factory.__qualname__ = name
    factory.__module__ = type(estimator).__module__
    factory.__doc__ = summary or f"Returns the method `{name}`."
    return factory
