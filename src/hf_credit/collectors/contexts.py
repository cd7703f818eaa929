"""Alternatives at contexts that reference rollouts visited: exactly Algorithm 1 of the paper C3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hf_credit.collectors.base import (
    Rollout,
    RolloutBatch,
    TaskRow,
    of_instance,
    refuse_over_budget,
    say_whether_shared,
)
from hf_credit.options import Count, Options
from hf_credit.rollouts import Episode, RolloutRequest, replay_from
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class VisitedContexts(Options):
    """Plays unscored reference rollouts, draws contexts that they visited, and replays alternatives there.

    Args:
        references: unscored episodes of each task row.
        contexts: drawn from those that the references of a row visited, at most.
        alternatives: messages at each drawn context.
        replays: continuations of each.
        common_random_numbers: whether the alternatives of a context are continued with the same random numbers.
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
                named = context.stream("context", instance, number) if self.common_random_numbers else None
                start = replay_from(context.interaction, context.chat, episode, turn, fanout=fanout, stream=named)
                replays.append(start)
                instances.append(instance)
        continued = context.play(replays)
        tokens = sum(episode.generated_tokens for episode in references)
        context.total("tokens/reference_rollouts", tokens)
        rollouts = [
            *(
                Rollout(episode=episode, instance=episode.start // self.references, trained=False, kind="reference")
                for episode in references
            ),
            *(
                Rollout(episode=of_instance(one, instances[one.start]), instance=instances[one.start])
                for one in continued
            ),
        ]
        collected = RolloutBatch(rollouts=tuple(rollouts), rows=len(rows))
        refuse_over_budget(collected, self.budget)
        return collected


def _contexts(references: Sequence[Episode]) -> list[tuple[Episode, int]]:
    """One decision for each context that the episodes visited, in the order of the visits (Algorithm 1, lines 3-4)."""
    visited: dict[tuple[str, tuple[int, ...]], tuple[Episode, int]] = {}
    for episode in references:
        for turn, decision in enumerate(episode.decisions):
            visited.setdefault((decision.event, decision.context_ids), (episode, turn))
    return list(visited.values())
