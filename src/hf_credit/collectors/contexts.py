"""Alternatives at contexts that reference rollouts visited: Algorithm 1 of the paper C3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hf_credit.collectors.base import Rollout, RolloutBatch, TaskRow, played, refuse_over_budget, say_whether_shared
from hf_credit.options import Count, Options
from hf_credit.rollouts import Episode, RolloutRequest, replay_from
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class VisitedContexts(Options):
    """Plays unscored reference rollouts, draws contexts that they visited, and replays alternatives there.

    Args:
        references: number of unscored episodes of each task row.
        contexts: maximum number of drawn contexts of each task row.
        alternatives: number of messages at each drawn context.
        replays: number of continuations of each message.
        common_random_numbers: whether the alternatives of a context continue with the same random numbers.
        budget: maximum number of terminal scores of one instance; unbounded if `None`.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives"})

    references: Count
    contexts: Count
    alternatives: Count
    replays: Count = 1
    common_random_numbers: bool = False
    budget: int | None = None
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        starts = [RolloutRequest[Any](task=row, scored=False) for row in rows for _ in range(self.references)]
        references = context.play(starts)
        say_whether_shared(context, self.common_random_numbers)
        fanout = (self.alternatives, self.replays)
        replays, instances = [], []
        for instance in range(len(rows)):
            visited = _contexts(references[instance * self.references : (instance + 1) * self.references])
            chosen = context.draws("contexts", instance).sample(visited, min(self.contexts, len(visited)))
            for number, (episode, turn) in enumerate(chosen):
                stream = context.stream("context", instance, number) if self.common_random_numbers else None
                start = replay_from(context.interaction, context.chat, episode, turn, fanout=fanout, stream=stream)
                replays.append(start)
                instances.append(instance)
        collected = played(context.play(replays), instances, len(rows))
        context.total("tokens/reference_rollouts", sum(episode.generated_tokens for episode in references))
        reference_rollouts = (
            Rollout(episode=episode, instance=episode.start // self.references, trained=False, kind="reference")
            for episode in references
        )
        collected = replace(collected, rollouts=(*reference_rollouts, *collected.rollouts))
        refuse_over_budget(collected, self.budget)
        return collected


def _contexts(references: Sequence[Episode]) -> list[tuple[Episode, int]]:
    """One decision for each context that the episodes visited, in visiting order (Algorithm 1, lines 3-4)."""
    visited: dict[tuple[str, tuple[int, ...]], tuple[Episode, int]] = {}
    for episode in references:
        for turn, decision in enumerate(episode.decisions):
            visited.setdefault((decision.event, decision.context_ids), (episode, turn))
    return list(visited.values())
