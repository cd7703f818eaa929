"""A collector of the probability of the right answer before each decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar, Literal, Self

from hf_credit.collectors.base import Around, Rollout, RolloutBatch, TaskRow
from hf_credit.rollouts import Decision, Ending, Interaction
from hf_credit.rollouts.capabilities import GoldAnswer
from hf_credit.rollouts.method_context import MethodContext

ANSWER = "answer"
"""The name of the mean log-probability of the right answer in `Decision.extras`."""


@dataclass(frozen=True, kw_only=True)
class Answers(Around):
    """The episodes of another collector, with the mean log-probability of the right answer before each decision.

    It is that of the answer's tokens, in nats, in a reply to the decision's context that begins as
    `GoldAnswer.gold_answer` says. Decisions of untrained roles, of failed episodes, and of tasks without a right
    answer have none.

    Args:
        inner: the collector of the episodes.
        policy: whose log-probability it is: that of the policy that plays, `"current"`, or of its `"frozen"` copy.
    """

    adds: ClassVar[frozenset[str]] = frozenset({"answers"})

    policy: Literal["current", "frozen"] = "current"

    def bind(self, interaction: Interaction[Any]) -> Self:
        """Returns the collector for one Interaction.

        Raises:
            ValueError: the Interaction does not know right answers.
        """
        if not GoldAnswer(interaction).knows_answers:
            raise ValueError(
                f"the right answer's probability needs a task that knows the answer, got {interaction.name!r}, which "
                "does not; implement its method gold_answer."
            )
        return super().bind(interaction)

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        answers = {
            one.id: self._asked(one, context)
            for rollout in collected.trained
            if rollout.episode.ending != Ending.ERROR
            for one in rollout.episode.decisions
            if not one.observed
        }
        asked = {name: one for name, one in answers.items() if one is not None}
        context.mean(f"inputs/{ANSWER}s", [float(name in asked) for name in answers])
        found = context.logprobs(list(asked.values()), self.policy)
        means = {name: fmean(tokens) for name, tokens in zip(asked, found, strict=True)}
        context.mean("answer/logprob", [*means.values()])
        return replace(collected, rollouts=tuple(_with_means(one, means) for one in collected.rollouts))

    def _asked(self, decision: Decision, context: MethodContext) -> Decision | None:
        """The decision to give the right answer in place of `decision`; `None` if the task has none."""
        gold = GoldAnswer(context.interaction).gold_answer(decision.state)
        before, ids = context.chat.answer_ids(*gold, decision.context_ids) if gold else ((), ())
        whole = decision.context_ids + before
        return replace(decision, context_ids=whole, action_ids=ids, logprobs=None) if ids else None


def _with_means(rollout: Rollout, means: dict[str, float]) -> Rollout:
    decisions = tuple(
        replace(one, extras={**one.extras, ANSWER: means[one.id]}) if one.id in means else one
        for one in rollout.episode.decisions
    )
    return replace(rollout, episode=replace(rollout.episode, decisions=decisions))
