"""New rollouts from the states of episodes, for Monte Carlo values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, ClassVar

from hf_credit.collectors.base import Collector, Rollout, RolloutBatch, Single, TaskRow, gives_of
from hf_credit.options import Count, Options
from hf_credit.rollouts import Decision, Ending, Interaction, RolloutRequest
from hf_credit.rollouts.method_context import MethodContext

CONTINUATION = "continuation"


@dataclass(frozen=True, kw_only=True)
class Continuations(Options):
    """The episodes of another collector, and rollouts of the same policy from the state before each of its decisions.

    The rollouts serve only for comparison. A failed episode has none.

    Args:
        rollouts: from each state.
        inner: plays the episodes to train on.
        template_kwargs: chat template settings of the rollouts, such as `{"enable_thinking": false}` for a lighter
            mode of the policy. `None` continues the recorded tokens instead.
    """

    rollouts: Count
    inner: Collector = field(default_factory=Single)
    template_kwargs: Mapping[str, Any] | None = None
    replaying: ClassVar[bool] = True

    @property
    def gives(self) -> frozenset[str]:
        """What `inner` gives, and values of states."""
        return gives_of(self.inner) | {"continuations"}

    def bind(self, interaction: Interaction[Any]) -> Continuations:
        """The same for one Interaction, bound through `inner`."""
        return replace(self, inner=self.inner.bind(interaction)) if hasattr(self.inner, "bind") else self

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        origins = [
            (rollout, decision)
            for rollout in collected.trained
            if rollout.episode.ending != Ending.ERROR
            for decision in rollout.episode.decisions
        ]
        starts = [self._start(decision, seed) for _, decision in origins for seed in range(self.rollouts)]
        played = context.play(starts, template_kwargs=self.template_kwargs)
        tokens = sum(episode.generated_tokens for episode in played)
        context.total("tokens/continuations", tokens)
        rollouts = (
            Rollout(
                episode=episode,
                instance=origins[place // self.rollouts][0].instance,
                trained=False,
                kind=CONTINUATION,
                source=origins[place // self.rollouts][1].id,
            )
            for place, episode in enumerate(played)
        )
        return replace(collected, rollouts=(*collected.rollouts, *rollouts))

    def _start(self, decision: Decision, seed: int) -> RolloutRequest[Any]:
        contexts = {decision.event: decision.context_ids} if self.template_kwargs is None else {}
        return RolloutRequest(state=decision.state, seed=seed, contexts=contexts)


def continuation_values(collected: RolloutBatch) -> list[list[float] | None]:
    """The Monte Carlo value of the state before each decision of each trained episode.

        V(s) = mean outcome of the rollouts from s, 0 if all of them failed

    Returns:
        `None` for a failed episode, which has no rollouts.
    """
    outcomes: dict[str, list[float]] = {}
    for rollout in collected.of_kind(CONTINUATION):
        known = outcomes.setdefault(rollout.source, [])
        if rollout.episode.ending != Ending.ERROR:
            known.append(rollout.episode.outcome)
    return [
        None
        if episode.ending == Ending.ERROR
        else [fmean(outcomes[decision.id]) if outcomes[decision.id] else 0.0 for decision in episode.decisions]
        for episode in collected.episodes
    ]
