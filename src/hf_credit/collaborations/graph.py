"""The protocol of a collaboration: a directed graph of event types, and loops that end."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True)
class Event:
    """A type of event (paper C3, eq. 1): a place in the protocol at which a role speaks.

    Attributes:
        name: of this type; no two events of a collaboration share one.
        role: who speaks. One role may speak at several events, also at the same time.
        after: the events that must have spoken before, one name or several.
        sees: the events whose outputs are shown; those of `after` if `None`.
        column: the column of the task row that is shown as the problem.
        history: where loops made an event speak several times, whether all its outputs are shown or the last only.
    """

    name: str
    role: str
    after: str | Sequence[str] = ()
    sees: str | Sequence[str] | None = None
    column: str = "problem"
    history: bool = False


@dataclass(frozen=True)
class Loop:
    """A way back: after `source` spoke, everything from `target` on is done anew.

    Attributes:
        source: the event that decides.
        target: where to begin anew, one event or several: each is `source` itself or comes before it.
        times: how often this loop is taken in an episode at most, at least 1.
        until: told the output of `source`; where it holds, the loop is not taken. `None` takes it every time.
    """

    source: str
    target: str | Sequence[str]
    times: int
    until: Callable[[str], bool] | None = None


class Graph:
    """Events and loops that were found to be a protocol: every event leads to a final one, and every walk ends.

    A walk through it makes at most `len(events) * (1 + sum of times)` events: in between two loops that are taken,
    each event speaks once.

    Args:
        events: in the canonical order of those that are due at the same time.
        final: the event that ends an episode, unless a loop begins at it; or several, after all of which it ends.
        loops: at most one from each event.

    Raises:
        ValueError: the events and loops are no such protocol, in one sentence that names the rule, the value and the
            remedy.
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
        self._redone = {
            source: {event.name for event in events if self._upstream(event.name) & {*_names(loop.target)}}
            for source, loop in self.loops.items()
        }
        self._refuse_unseen()

    def due(self, done: Set[str]) -> list[Event]:
        """The events that are due at the same time after `done`, in their canonical order; none at the end."""
        return [event for event in self.events if event.name not in done and done >= {*self.after[event.name]}]

    def hearers(self, names: Set[str]) -> set[str]:
        """The events that see what one of `names` said, or what was said by one that does."""
        found: set[str] = set()
        while more := {name for name, seen in self.sees.items() if {*seen} & (found | names)} - found:
            found |= more
        return found

    def redone(self, source: str) -> set[str]:
        """The events that the loop from `source` has done anew."""
        return self._redone[source]

    def _upstream(self, name: str) -> set[str]:
        return self._before[name] | {name}

    def _ancestors(self) -> dict[str, set[str]]:
        try:
            order = list(TopologicalSorter(self.after).static_order())
        except CycleError as error:
            raise ValueError(
                f"events must come after each other without a cycle, got {' -> '.join(error.args[1])}, which has no "
                "end; take one of them out of `after` and repeat it with a Loop."
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
                raise ValueError(f"events must have names of their own, got {name!r} twice; rename one of them.")
        if not self.finals:
            raise ValueError("a collaboration must have a final event, got none; name the event that ends it.")
        used = [(f"final={self.final!r}", [*self.finals])]
        used += [(f"the event {name!r}", [*self.after[name], *self.sees[name]]) for name in names]
        used += [(f"the loop from {loop.source!r}", [loop.source, *_names(loop.target)]) for loop in loops]
        for where, mentioned in used:
            for name in mentioned:
                if name not in names:
                    raise ValueError(
                        f"a collaboration knows the events {', '.join(names)}, got {name!r} in {where}; correct the "
                        "name or add the event."
                    )

    def _refuse_dead_ends(self) -> None:
        leading = {name for final in self.finals for name in self._upstream(final)}
        for event in self.events:
            if event.name not in leading:
                raise ValueError(
                    f"every event must lead to the final one, {self.final!r}, got {event.name!r} of the role "
                    f"{event.role!r}, which does not; name it in the `after` of an event that does, or remove it."
                )

    def _refuse_loops(self, loops: Sequence[Loop]) -> None:
        for loop in loops:
            if self.loops[loop.source] is not loop:
                raise ValueError(f"an event has one loop at most, got two from {loop.source!r}; remove one of them.")
            target, possible = _names(loop.target), self._upstream(loop.source)
            if not target or not {*target} <= possible:
                raise ValueError(
                    f"a loop must go back to its source {loop.source!r} or events before it, got {list(target)}; "
                    f"choose among {', '.join(sorted(possible))}."
                )
            if loop.times < 1:
                raise ValueError(
                    f"a loop's times must be at least 1, got {loop.times} in the loop from {loop.source!r}; raise it "
                    "or remove the loop."
                )

    def _refuse_unseen(self) -> None:
        for event in self.events:
            seen = self._before[event.name].union(
                *(self._upstream(source) for source in self.loops if event.name in self._redone[source])
            )
            for name in self.sees[event.name]:
                if name not in seen:
                    raise ValueError(
                        f"an event sees what was said before it or before a loop to it, got {event.name!r} that sees "
                        f"{name!r}; name {name!r} in its `after` as well, or add a Loop."
                    )


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
