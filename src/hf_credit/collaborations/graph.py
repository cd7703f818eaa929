"""The protocol of a collaboration: a directed acyclic graph of event types, and bounded loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from hf_credit.validators import one_of, whole_number


@dataclass(frozen=True)
class Event:
    """A type of event (paper C3, eq. 1): a turn of a role in the protocol.

    Attributes:
        name: unique in the collaboration.
        role: of the speaker. A role may speak at several events, also simultaneously.
        after: the events that must have spoken before, one name or several.
        sees: the events whose outputs it sees; those of `after` if `None`.
        column: the column of the task row that it sees as the problem.
        history: whether it sees all outputs of an event that loops repeat, or only the last one.
    """

    name: str
    role: str
    after: str | Sequence[str] = ()
    sees: str | Sequence[str] | None = None
    column: str = "problem"
    history: bool = False


@dataclass(frozen=True)
class Loop:
    """A repetition: after `source` speaks, all events from `target` on speak again.

    Attributes:
        source: the event that decides.
        target: the first events to repeat, one name or several: `source` itself or events before it.
        times: maximum number of repetitions in an episode, at least 1.
        until: receives the output of `source` and returns whether to stop. `None` always repeats.
    """

    source: str
    target: str | Sequence[str]
    times: int
    until: Callable[[str], bool] | None = None


class Graph:
    """A valid protocol of events and loops: every event leads to a final one, and every walk ends.

    A walk has at most `len(events) * (1 + sum of times)` events, since each event speaks at most once between two
    repetitions.

    Args:
        events: simultaneous ones keep this order.
        final: the event that ends an episode, unless a loop starts there; or several, all of which must be complete.
        loops: at most one from each event.

    Attributes:
        redone: for each loop's source, the events that the loop repeats.

    Raises:
        ValueError: the events and loops are not such a protocol.
    """

    def __init__(self, events: Sequence[Event], final: str | Sequence[str], loops: Sequence[Loop] = ()) -> None:
        self.events = tuple(events)
        self.final = final
        self.finals = _names(final)
        self.loops = {loop.source: loop for loop in loops}
        self.after = {event.name: _names(event.after) for event in events}
        self.sees = {event.name: _names(event.after if event.sees is None else event.sees) for event in events}
        self._refuse_names(loops)
        self._before = self._ancestors()
        self._refuse_dead_ends()
        self._refuse_loops(loops)
        self.redone = {
            source: {event.name for event in events if self._upstream(event.name) & {*_names(loop.target)}}
            for source, loop in self.loops.items()
        }
        self._refuse_unseen()

    def due(self, done: Set[str]) -> list[Event]:
        """Returns the events that are due simultaneously after `done`, in order; none at the end."""
        return [event for event in self.events if event.name not in done and done >= {*self.after[event.name]}]

    def hearers(self, names: Set[str]) -> set[str]:
        """Returns the events that see an output of `names`, directly or indirectly."""
        hearers: set[str] = set()
        while more := {name for name, seen in self.sees.items() if {*seen} & (hearers | names)} - hearers:
            hearers |= more
        return hearers

    def _upstream(self, name: str) -> set[str]:
        return self._before[name] | {name}

    def _ancestors(self) -> dict[str, set[str]]:
        try:
            order = list(TopologicalSorter(self.after).static_order())
        except CycleError as error:
            raise ValueError(
                f"events must not form a cycle by `after`, got {' -> '.join(error.args[1])}; remove one of them from "
                "`after` and repeat it with a Loop."
            ) from None
        before: dict[str, set[str]] = {}
        for name in order:
            before[name] = set(self.after[name]).union(*(before[earlier] for earlier in self.after[name]))
        return before

    def _refuse_names(self, loops: Sequence[Loop]) -> None:
        names = [event.name for event in self.events]
        if not names:
            raise ValueError("a collaboration must have an event, got none; add an Event.")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"events must have different names, got {name!r} twice; rename one of them.")
        if not self.finals:
            raise ValueError("a collaboration must have a final event, got none; name the event that ends it.")
        references = [(f"final={self.final!r}", [*self.finals])]
        references += [(f"the event {name!r}", [*self.after[name], *self.sees[name]]) for name in names]
        references += [(f"the loop from {loop.source!r}", [loop.source, *_names(loop.target)]) for loop in loops]
        for where, mentioned in references:
            for name in mentioned:
                one_of(f"an event in {where}", name, names)

    def _refuse_dead_ends(self) -> None:
        useful = {name for final in self.finals for name in self._upstream(final)}
        for event in self.events:
            if event.name not in useful:
                raise ValueError(
                    f"every event must lead to the final one, {self.final!r}, got {event.name!r} of the role "
                    f"{event.role!r}, which does not; add it to the `after` of an event that does, or remove it."
                )

    def _refuse_loops(self, loops: Sequence[Loop]) -> None:
        for loop in loops:
            if self.loops[loop.source] is not loop:
                raise ValueError(f"an event must have at most one loop, got two from {loop.source!r}; remove one.")
            target, possible = _names(loop.target), self._upstream(loop.source)
            if not target or not {*target} <= possible:
                raise ValueError(
                    f"a loop must go back to its source {loop.source!r} or events before it, got {list(target)}; "
                    f"choose among {', '.join(sorted(possible))}."
                )
            whole_number(f"times of the loop from {loop.source!r}", loop.times, 1)

    def _refuse_unseen(self) -> None:
        for event in self.events:
            earlier = self._before[event.name].union(
                *(self._upstream(source) for source in self.loops if event.name in self.redone[source])
            )
            for name in self.sees[event.name]:
                if name not in earlier:
                    raise ValueError(
                        f"an event must see only events before it or before a loop to it, got {event.name!r} that "
                        f"sees {name!r}; add {name!r} to its `after`, or add a Loop."
                    )


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
