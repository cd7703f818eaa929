"""New rollouts from the states of episodes, for Monte Carlo values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, ClassVar

from hf_credit.collectors.base import Collector, Rollout, RolloutBatch, Single, TaskRow, bound, gives_of
from hf_credit.options import Count, Options
from hf_credit.rollouts import Ending, Interaction, RolloutRequest
from hf_credit.rollouts.method_context import MethodContext

CONTINUATION = "continuation"


@dataclass(frozen=True, kw_only=True)
class Continuations(Options):
    """The episodes of another collector, and rollouts of the same policy from the state before each decision.

    The rollouts serve only for comparison. A failed episode has none.

    Args:
        rollouts: number from each state.
        inner: the collector of the episodes to train on.
        template_kwargs: chat template settings of the rollouts, such as `{"enable_thinking": false}` for a cheaper
            mode of the policy. `None` continues the recorded tokens instead.
    """

    rollouts: Count
    inner: Collector = field(default_factory=Single)
    template_kwargs: Mapping[str, Any] | None = None
    replaying: ClassVar[bool] = True

    @property
    def gives(self) -> frozenset[str]:
        """What `inner` gives, and continuations."""
        return gives_of(self.inner) | {"continuations"}

    def bind(self, interaction: Interaction[Any]) -> Continuations:
        """Binds `inner` to one Interaction."""
        return replace(self, inner=bound(self.inner, interaction))

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        origins = [
            (rollout, decision)
            for rollout in collected.trained
            if rollout.episode.ending != Ending.ERROR
            for decision in rollout.episode.decisions
        ]
        recorded = self.template_kwargs is None
        starts: list[RolloutRequest[Any]] = [
            RolloutRequest(state=one.state, seed=seed, contexts={one.event: one.context_ids} if recorded else {})
            for _, one in origins
            for seed in range(self.rollouts)
        ]
        played = context.play(starts, template_kwargs=self.template_kwargs)
        context.total("tokens/continuations", sum(episode.generated_tokens for episode in played))
        rollouts = [
            Rollout(episode=episode, instance=origin.instance, trained=False, kind=CONTINUATION, source=decision.id)
            for index, episode in enumerate(played)
            for origin, decision in [origins[index // self.rollouts]]
        ]
        return replace(collected, rollouts=(*collected.rollouts, *rollouts))


def continuation_values(collected: RolloutBatch) -> list[list[float] | None]:
    """Returns the Monte Carlo value of the state before each decision of each trained episode.

        V(s) = mean outcome of the rollouts from s that did not fail, NaN if all of them failed

    All of them failed if one diverged (`hf_credit.rollouts.failures.unknown_where_diverged`).

    Returns:
        For each episode, the values of its decisions; `None` for a failed one, which has no rollouts.
    """
    outcomes: dict[str, list[float]] = {}
    for rollout in collected.of_kind(CONTINUATION):
        of_source = outcomes.setdefault(rollout.source, [])
        if rollout.episode.ending != Ending.ERROR:
            of_source.append(rollout.episode.outcome)
    return [
        None
        if episode.ending == Ending.ERROR
        else [fmean(outcomes[decision.id] or [math.nan]) for decision in episode.decisions]
        for episode in collected.episodes
    ]
