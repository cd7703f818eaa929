"""Whole episodes, and the same without an agent (the paper CCPO, section 4 and Appendix B.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from hf_credit.collectors.base import Rollout, RolloutBatch, TaskRow, say_whether_shared
from hf_credit.options import GroupSize, Options, filled_by_bind
from hf_credit.rollouts import Ending, Episode, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import Removable
from hf_credit.rollouts.method_context import MethodContext

Roles = tuple[str, ...]


def without(roles: Sequence[str]) -> str:
    """The kind of a rollout that was played without these roles."""
    return f"without {', '.join(roles)}"


@dataclass(frozen=True, kw_only=True)
class Removals(Options):
    """Several episodes of each task row, and each of them again without a role, for every removable role.

    An episode without a role continues from the Interaction's state without it (`Removable.without`). If no replies
    are missing, as in a vote, it is over at once. If the role opens the episode, like a thinker, nothing of the
    episode remains, and it is played from the start, within the rounds of the whole episodes. Otherwise earlier
    messages stay, and roles that have read the removed messages reply again, in further rounds.

    Such rollouts serve only for comparison. Their `source` is the first decision of the episode that they are compared
    with.

    Args:
        size: whole episodes of each task row.
        pairing: of episodes that are played from the start without a role, as many as there are whole ones: `"index"`
            compares each with one of them; `"mean"` all with all of the task row, so that they have no `source`;
            `"common"` is `"index"` with the same random draws in both, where the sampler honours seeds.
        alone: whether the one role that cannot be removed is also played without the others.
        train_alone: whether its replies then may be trained on; they are never counted.
        removals: the roles to remove together; filled in by `bind`.

    Raises:
        ValueError: `size` is below 2, or `pairing` is unknown.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "removals"})

    size: GroupSize = 4
    pairing: Literal["index", "mean", "common"] = "index"
    alone: bool = True
    train_alone: bool = False
    removals: tuple[Roles, ...] = filled_by_bind(())
    replaying: ClassVar[bool] = True

    def bind(self, interaction: Interaction[Any]) -> Removals:
        """The same for the roles of one Interaction."""
        known = Removable(interaction).removable
        removable = tuple(role for role in interaction.roles if role in known)
        removals: list[Roles] = [(role,) for role in removable]
        if self.alone and 1 < len(removable) == len(interaction.roles) - 1:
            removals.append(removable)
        return replace(self, removals=tuple(removals))

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        say_whether_shared(context, self.pairing == "common")
        interaction = context.interaction
        starts: list[RolloutRequest[Any]] = []
        made: list[tuple[int, int, Roles]] = []  # of each start: its instance, which of the episodes, without whom
        for instance, row in enumerate(rows):
            first, speaking = _opening(interaction, row)
            states: list[tuple[Roles, Any]] = [((), first)]
            for roles in self.removals if first is not None and speaking else ():
                if speaking <= {*roles}:
                    states += [(roles, state) for state in self._left(context, first, roles)]
            for roles, state in states:
                for number in range(self.size):
                    seed = None if state is None or number == 0 else number
                    starts.append(
                        RolloutRequest(
                            task=row,
                            state=state,
                            seed=seed,
                            stream=self._stream(context, instance, number),
                            comparison=bool(roles),
                        )
                    )
                    made.append((instance, number, roles))
        played = dict(zip(made, context.play(starts), strict=True))
        whole = {one[:2]: episode for one, episode in played.items() if not one[2]}
        later = [
            ((*place, roles), RolloutRequest(state=state, stream=self._stream(context, *place), comparison=True))
            for place, episode in whole.items()
            if episode.ending != Ending.ERROR
            for roles in self.removals
            if (*place, roles) not in played
            for state in self._left(context, episode.final_state, roles)
        ]
        again = context.play([start for _, start in later])
        played |= dict(zip([one for one, _ in later], again, strict=True))
        drawn_anew = {roles for _, _, roles in made}
        rollouts = (
            self._rollout(one, episode, whole[one[:2]], drawn_anew) for one, episode in sorted_by_place(played).items()
        )
        return RolloutBatch(rollouts=tuple(rollouts), rows=len(rows))

    def _left(self, context: MethodContext, state: Any, roles: Roles) -> list[Any]:
        """The state without these roles; `None` if the Interaction's own code fails, which is logged."""
        try:
            for role in roles:
                state = Removable(context.interaction).without(state, role)
        except Exception as error:
            context.failures.add(error)
            return []
        return [state]

    def _stream(self, context: MethodContext, instance: int, number: int) -> str | None:
        return context.stream("rollout", instance, number) if self.pairing == "common" else None

    def _rollout(
        self, one: tuple[int, int, Roles], episode: Episode, whole: Episode, drawn_anew: set[Roles]
    ) -> Rollout:
        instance, _, roles = one
        episode = replace(episode, start=instance)
        if not roles:
            return Rollout(episode=episode, instance=instance)
        for_all = self.pairing == "mean" and roles in drawn_anew
        own = self.train_alone and len(roles) == max(map(len, self.removals))
        return Rollout(
            episode=episode,
            instance=instance,
            trained=own,
            counted=False,
            kind=without(roles),
            source="" if for_all else (whole.decisions[0].id if whole.decisions else "none"),
        )


def sorted_by_place(played: dict[tuple[int, int, Roles], Episode]) -> dict[tuple[int, int, Roles], Episode]:
    """The same, instance by instance, each whole episode before those without a role."""
    return dict(sorted(played.items(), key=lambda item: (item[0][0], len(item[0][2]) > 0)))


def _opening(interaction: Interaction[Any], row: TaskRow) -> tuple[Any, set[str]]:
    """The first state of a task, and its roles; `None` if its code fails, which the Engine logs."""
    try:
        first = interaction.start(row, row.get("seed", 0))
        return first, {request.role for request in interaction.pending(first)}
    except Exception:
        return None, set()
