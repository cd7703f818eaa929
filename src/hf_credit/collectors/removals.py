"""Whole episodes, and the same episodes without a role (paper CCPO, section 4 and Appendix B.1)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from hf_credit.collectors.base import Rollout, RolloutBatch, TaskRow, say_whether_shared
from hf_credit.options import GroupSize, Options, filled_by_factory
from hf_credit.rollouts import Ending, Episode, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import Removable
from hf_credit.rollouts.failures import UNKNOWN
from hf_credit.rollouts.method_context import MethodContext

Roles = tuple[str, ...]
Key = tuple[int, int, Roles]
"""A rollout's instance, the number of its whole episode, and the roles that are removed from it."""


def without(roles: Sequence[str]) -> str:
    """Returns the kind of a rollout without these roles."""
    return f"without {', '.join(roles)}"


@dataclass(frozen=True, kw_only=True)
class Removals(Options):
    """Several episodes of each task row, and each of them again without a role, for every removable role.

    An episode without a role continues from the Interaction's state without it (`Removable.without`). If no replies
    are missing, as in a vote, it is over at once. If the role opens the episode, like a thinker, nothing of the
    episode remains: it is played from the start, together with the whole episodes. Otherwise earlier messages stay,
    and roles that have read the removed messages reply again, in further rounds.

    Such rollouts serve only for comparison. Their `source` is the first decision of the episode that they are compared
    with.

    Args:
        size: number of whole episodes of each task row, at least 2.
        pairing: of episodes that are played from the start without a role, as many as whole ones: `"index"` compares
            each with one whole episode; `"mean"` compares all with all of the task row, so that they have no `source`;
            `"common"` is `"index"` with the same random draws in both, if the sampler honours seeds.
        alone: whether to play the one role that cannot be removed also without all others.
        train_alone: whether to train on its replies then; these episodes are never counted.
        removals: the roles to remove together; filled in by `bind`.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "removals"})

    size: GroupSize = 4
    pairing: Literal["index", "mean", "common"] = "index"
    alone: bool = True
    train_alone: bool = False
    removals: tuple[Roles, ...] = filled_by_factory(())
    replaying: ClassVar[bool] = True

    def bind(self, interaction: Interaction[Any]) -> Removals:
        """Returns the collector with the removals of one Interaction."""
        possible = Removable(interaction).removable
        removable = tuple(role for role in interaction.roles if role in possible)
        removals: list[Roles] = [(role,) for role in removable]
        if self.alone and 1 < len(removable) == len(interaction.roles) - 1:
            removals.append(removable)
        return replace(self, removals=tuple(removals))

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        say_whether_shared(context, self.pairing == "common")
        interaction = context.interaction
        first: dict[Key, RolloutRequest[Any]] = {}
        for instance, row in enumerate(rows):
            begun = context.begin(row, instance)
            opening, speaking = _opening(interaction, begun)
            states: list[tuple[Roles, Any]] = [((), opening)]
            for roles in self.removals if opening is not None and speaking else ():
                if speaking <= {*roles}:
                    states += [(roles, state) for state in self._without(context, opening, roles)]
            for roles, state in states:
                for number in range(self.size):
                    first[instance, number, roles] = replace(
                        begun,
                        state=state,
                        seed=None if state is None or number == 0 else number,
                        stream=self._stream(context, instance, number),
                        comparison=bool(roles),
                    )
        played = dict(zip(first, context.play([*first.values()]), strict=True))
        whole = {key[:2]: episode for key, episode in played.items() if not key[2]}
        later: dict[Key, RolloutRequest[Any]] = {
            (*place, roles): RolloutRequest(state=state, stream=self._stream(context, *place), comparison=True)
            for place, episode in whole.items()
            if episode.ending != Ending.ERROR
            for roles in self.removals
            if (*place, roles) not in played
            for state in self._without(context, episode.final_state, roles)
        }
        played |= zip(later, context.play([*later.values()]), strict=True)
        from_start = {roles for _, _, roles in first}
        # Instance by instance, whole episodes before those without a role.
        ordered = sorted(played.items(), key=lambda item: (item[0][0], bool(item[0][2])))
        rollouts = (self._rollout(key, episode, whole[key[:2]], from_start) for key, episode in ordered)
        return RolloutBatch(rollouts=tuple(rollouts), rows=len(rows))

    def _without(self, context: MethodContext, state: Any, roles: Roles) -> list[Any]:
        """The state without these roles; none if the Interaction's code fails, which is logged."""
        context.progressed()
        try:
            return [functools.reduce(Removable(context.interaction).without, roles, state)]
        except Exception as error:
            context.failures.add(error)
            context.mean(UNKNOWN, [1.0])
            return []

    def _stream(self, context: MethodContext, instance: int, number: int) -> str | None:
        return context.stream("rollout", instance, number) if self.pairing == "common" else None

    def _rollout(self, key: Key, episode: Episode, whole: Episode, from_start: set[Roles]) -> Rollout:
        instance, _, roles = key
        episode = replace(episode, start=instance)
        if not roles:
            return Rollout(episode=episode, instance=instance)
        for_all = self.pairing == "mean" and roles in from_start
        source = "" if for_all else (whole.decisions[0].id if whole.decisions else "none")
        trained = self.train_alone and len(roles) == max(map(len, self.removals))
        return Rollout(
            episode=episode, instance=instance, trained=trained, counted=False, kind=without(roles), source=source
        )


def _opening(interaction: Interaction[Any], begun: RolloutRequest[Any]) -> tuple[Any, set[str]]:
    """A request's first state and the roles that speak there; `None` if its code fails, which the Engine logs."""
    try:
        first = interaction.start(begun.task, begun.task.get("seed", 0)) if begun.state is None else begun.state
        return first, {request.role for request in interaction.pending(first)}
    except Exception:
        return None, set()
