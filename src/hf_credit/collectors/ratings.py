"""A collector that asks the roles of a team, after an episode, for the share of each in its result (SEPO)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self, TypedDict

from hf_credit.boundary import Range, read
from hf_credit.collectors.base import Around, Rollout, RolloutBatch, TaskRow
from hf_credit.content import in_words
from hf_credit.options import Count
from hf_credit.replies import spoken
from hf_credit.rollouts import Ending, Episode, Interaction, Request, RolloutRequest
from hf_credit.rollouts.capabilities import ContextStyle
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.safe_io import parse_json

SHARES = "shares"
"""The name of the ratings in `Rollout.extras`: for each role in order, the shares of all roles."""
RATING = "rating"
"""The name of the episode of `Questions` in which they were written."""
CORRECT, WRONG = "correct", "wrong"


class _Rating(TypedDict):
    outcome: str
    shares: Mapping[str, Annotated[float, Range(0, 1)]]


@dataclass(frozen=True)
class Asked:
    """A question to each role, and the replies once they are there."""

    questions: tuple[str, ...]
    replies: tuple[str, ...] = ()


class Questions(Interaction[Asked]):
    """Each role replies once to a question of the state that it starts from; all at the same time.

    Args:
        max_tokens: of a reply.
    """

    def __init__(self, roles: Sequence[str], max_tokens: int) -> None:
        self.roles = tuple(roles)
        self.max_tokens = max_tokens

    def start(self, task: Mapping[str, Any], seed: int) -> Asked:
        return Asked(())

    def pending(self, state: Asked) -> tuple[Request, ...]:
        questions = () if state.replies else zip(self.roles, state.questions, strict=True)
        return tuple(
            Request(role=role, messages=({"role": "user", "content": question},), max_tokens=self.max_tokens)
            for role, question in questions
        )

    def advance(self, state: Asked, replies: Sequence[str]) -> Asked:
        return replace(state, replies=tuple(map(str, replies)))

    def outcome(self, state: Asked) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Ratings(Around):
    """The episodes of another collector, each with ratings: every role says the share of each role in the result.

    A rating is JSON in the reply to a question that shows the task, all replies and whether the result is correct. One
    that cannot be read, or states another result, counts as equal shares (`ratings/valid`). Failed episodes have none,
    nor have those without a reply.

    Args:
        inner: the collector of the episodes.
        max_tokens: of a rating.
        roles: of the team, in order; filled in by `bind`.
    """

    adds: ClassVar[frozenset[str]] = frozenset({"ratings"})

    max_tokens: Count = 512
    roles: tuple[str, ...] = ()

    def bind(self, interaction: Interaction[Any]) -> Self:
        """Returns the collector for the roles of one Interaction.

        Raises:
            ValueError: there are fewer than two roles, or they cannot be asked in words.
        """
        roles = tuple(interaction.roles)
        if len(roles) < 2 or not ContextStyle(interaction).words:
            raise ValueError(
                f"ratings need two or more roles that can be asked in words, got {interaction.name!r} with "
                f"{', '.join(roles) or 'none'}; use a collaboration, or method: grpo."
            )
        return replace(super().bind(interaction), roles=roles)

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        rated = {
            place: Asked(self._questions(one.episode, context))
            for place, one in enumerate(collected.rollouts)
            if one.trained and one.episode.ending != Ending.ERROR and one.episode.decisions
        }
        starts: list[RolloutRequest[Any]] = [RolloutRequest(state=one, comparison=True) for one in rated.values()]
        played = context.play(starts, interaction=Questions(self.roles, self.max_tokens))
        rollouts = list(collected.rollouts)
        for place, rating in zip(rated, played, strict=True):
            rollouts[place] = self._rated(rollouts[place], rating, context)
        return replace(collected, rollouts=tuple(rollouts))

    def _rated(self, rollout: Rollout, rating: Episode, context: MethodContext) -> Rollout:
        replies = {one.role: one.action_text for one in rating.decisions}
        written = [self._shares(replies.get(role, ""), _result(rollout.episode)) for role in self.roles]
        context.mean("ratings/valid", [float(one is not None) for one in written])
        equal = (1 / len(self.roles),) * len(self.roles)
        shares = tuple(one or equal for one in written)
        return replace(rollout, extras={**rollout.extras, SHARES: shares, RATING: rating})

    def _questions(self, episode: Episode, context: MethodContext) -> tuple[str, ...]:
        first = context.interaction.pending(episode.decisions[0].state)[0].messages[-1]["content"]
        said = "\n\n".join(f"{one.role}: {spoken(one.action_text)}" for one in episode.decisions)
        example = json.dumps({"outcome": _result(episode), "shares": dict.fromkeys(self.roles, 1 / len(self.roles))})
        return tuple(_QUESTION.format(in_words(first), said, _result(episode), role, example) for role in self.roles)

    def _shares(self, reply: str, result: str) -> tuple[float, ...] | None:
        """The shares of all roles in a rating; `None` if it cannot be read."""
        text = spoken(reply)
        try:
            written = parse_json(text[text.index("{") : text.rindex("}") + 1], broken_text=True)
            rating = read(_Rating, written, "a rating")
            shares = tuple(rating["shares"][role] for role in self.roles)
        except (ValueError, KeyError):
            return None
        sums = math.isclose(sum(shares), 1, abs_tol=1e-6) and len(rating["shares"]) == len(self.roles)
        return shares if sums and rating["outcome"] == result else None


def _result(episode: Episode) -> str:
    return CORRECT if episode.outcome > 0.5 else WRONG


_QUESTION = """\
A team worked on this task:

{}

Its members said:

{}

The result is {}. You are {}. Say which share each member has in this result: the merit if it is correct, the blame \
if it is wrong. Shares sum to 1. Reply with JSON alone, in this form:
{}"""
