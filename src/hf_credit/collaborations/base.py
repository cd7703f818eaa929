"""The Interaction in which several roles work on a task by a protocol, also from plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hf_credit.boundary import read
from hf_credit.collaborations.graph import Event, Graph, Loop
from hf_credit.collaborations.scorers import Scorer, check_score, reads_transcript, resolve_scorer
from hf_credit.collaborations.text import normalise
from hf_credit.registry import find, name_of, plain, refuse_options
from hf_credit.replies import spoken
from hf_credit.rollouts import Interaction, Request
from hf_credit.rollouts.capabilities import cannot_leave_out
from hf_credit.rollouts.interaction import readable_state
from hf_credit.safe_io import parse_json
from hf_credit.trust import class_name, importable
from hf_credit.validators import one_of


@dataclass(frozen=True, kw_only=True)
class CollaborationState:
    """The state of a collaboration: a replay state (paper C3, section 3.1).

    Attributes:
        task: the task row as canonical JSON.
        transcript: (event, output) in the order of their creation; simultaneous ones in the order of declaration.
        done: the events that need not speak again, in the order of declaration.
        loops: how often each loop was taken, in the order of declaration.
    """

    task: str
    transcript: tuple[tuple[str, str], ...] = ()
    done: tuple[str, ...] = ()
    loops: tuple[int, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """The task row, with lists instead of tuples."""
        return json.loads(self.task)  # type: ignore[no-any-return]


class Collaboration(Interaction[CollaborationState]):
    """Roles that speak by a protocol, until the final event (paper C3, section 2).

    Every reply answers two messages, which depend only on the task and the transcript: the role's prompt as the system
    message, and the user message of Appendix B,

        Problem: <a column of the task row>

        Context: <outputs of the events it sees, in the order of their creation, separated by two line breaks>

    The paper shows no line breaks; these are ours. Prompts, problems, outputs and whole messages are trimmed and have
    `\\n` as line breaks. An output is a reply without its thoughts; the context omits empty ones.

    Events that are due at the same time speak simultaneously and do not see each other.

    Args:
        roles: the system prompt of each role.
        events: the turns of the roles; simultaneous events keep this order.
        final: the event whose completion ends the episode, or several, all of which must be complete.
        scorer: scores the text of `scored_event`, given the task row, in [0, 1]: a function, or its
            `"package.module:function"` (see `resolve_scorer`). If it has a parameter `transcript`, it also receives
            all outputs as (event, output) in the order of their creation. The task row may contain data for the
            scorer, such as the gold answer; roles see only the columns that events name.
        loops: repeated parts of the protocol.
        sanitise: changes each output before any role or the scorer sees it; `None` changes nothing.
        scored_event: the event whose last output is scored; if `None`, the final one, or the last of several.

    A role can be removed (`without`) if its output is not scored and there are no loops: its outputs disappear, and
    the roles that saw them, directly or indirectly, reply again.

    Raises:
        ValueError: the protocol has no end, an output reaches nobody, or a name is unknown.
    """

    enumerable = True
    state_type: type[CollaborationState] = CollaborationState

    def __init__(
        self,
        roles: Mapping[str, str],
        events: Sequence[Event],
        final: str | Sequence[str],
        scorer: Scorer | str,
        loops: Sequence[Loop] = (),
        sanitise: Callable[[str], str] | None = None,
        scored_event: str | None = None,
    ) -> None:
        self.graph = Graph(events, final, loops)
        self.roles: Mapping[str, str] = {role: normalise(prompt) for role, prompt in roles.items()}
        self.scorer = resolve_scorer(scorer)
        self._scores_transcript = reads_transcript(self.scorer)
        self.sanitise = sanitise
        self.scored_event = self.graph.finals[-1] if scored_event is None else scored_event
        speaking = {event.role: event.name for event in self.graph.events}
        for role, name in speaking.items():
            one_of(f"the role of the event {name!r}", role, self.roles)
        if silent := [role for role in self.roles if role not in speaking]:
            raise ValueError(
                f"every role must speak at some event, got {silent[0]!r}, which never does; add an Event or remove it."
            )
        one_of("the scored event", self.scored_event, (event.name for event in events))

    @property
    def removable(self) -> tuple[str, ...]:
        if self.graph.loops:
            return ()
        kept = {event.role for event in self.graph.events if event.name == self.scored_event}
        return tuple(role for role in self.roles if role not in kept)

    @property
    def max_replies(self) -> int:  # type: ignore[override]
        return len(self.graph.events) * (1 + sum(loop.times for loop in self.graph.loops.values()))

    def spec(self) -> dict[str, Any]:
        """As for `Interaction`; the spec of a hand-made protocol names the collaboration `graph`.

        Raises:
            ValueError: the scorer, `sanitise` or a loop's `until` cannot be imported by name, such as a lambda.
        """
        if name_of(self) is not None or type(self) is not Collaboration:
            return super().spec()
        return {"task": "graph", "task_options": self._protocol(importable)}

    def fingerprint(self) -> dict[str, Any]:
        try:
            return self.spec()
        except ValueError:
            protocol = {"task": "graph", "task_options": self._protocol(_called)}
            return {"interaction": class_name(self), **protocol}

    def require_columns(self, columns: Iterable[str] | None) -> None:
        missing = set() if columns is None else {event.column for event in self.graph.events} - {*columns}
        if missing:
            raise ValueError(
                f"a dataset must have the columns that the events show, got {', '.join(columns or ())} without "
                f"{', '.join(sorted(missing))}; rename a column, or choose another in the collaboration's options."
            )

    def _protocol(self, named: Callable[[Any], str]) -> dict[str, Any]:
        """The arguments of `hf_credit.collaborations.base.graph`, with functions by name."""
        loops = [
            {**asdict(loop), "until": None if loop.until is None else named(loop.until)}
            for loop in self.graph.loops.values()
        ]
        return plain(  # type: ignore[no-any-return]
            {
                "roles": self.roles,
                "events": [asdict(event) for event in self.graph.events],
                "final": self.graph.final,
                "scorer": named(self.scorer),
                "loops": loops,
                "sanitise": None if self.sanitise is None else named(self.sanitise),
                "scored_event": self.scored_event,
            }
        )

    def start(self, task: Mapping[str, Any], seed: int) -> CollaborationState:
        """Returns the first state of a task row. A collaboration is deterministic, so `seed` has no effect.

        Raises:
            ValueError: a column that an event shows is missing or not a text, or a value is not JSON.
        """
        for event in self.graph.events:
            if not isinstance(task.get(event.column), str):
                raise ValueError(
                    f"a task row must have text in the column {event.column!r}, which the event {event.name!r} "
                    f"shows, got {repr(task.get(event.column))[:100]} and the columns {', '.join(map(str, task))}; "
                    "add it, or choose another column in the Event."
                )
        try:
            row = json.dumps(dict(task), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"a task row must contain JSON values, got another value ({error}); convert it or remove its column."
            ) from None
        return self.state_type(task=row, loops=(0,) * len(self.graph.loops))

    def pending(self, state: CollaborationState) -> tuple[Request, ...]:
        due = self.graph.due({*state.done})
        row = state.row if due else {}
        return tuple(Request(role=e.role, event=e.name, messages=self._messages(e, row, state)) for e in due)

    def advance(self, state: CollaborationState, replies: Sequence[str]) -> CollaborationState:
        due = self.graph.due({*state.done})
        outputs = [(event.name, self._output(event, reply)) for event, reply in zip(due, replies, strict=True)]
        done = {*state.done, *(name for name, _ in outputs)}
        taken = dict(zip(self.graph.loops, state.loops, strict=True))
        # Of two simultaneous loops, the first may make the second's source undone; then the second waits.
        for name, output in outputs:
            loop = self.graph.loops.get(name)
            if loop is None or name not in done or taken[name] >= loop.times:
                continue
            if loop.until is None or not loop.until(output):
                taken[name] += 1
                done -= self.graph.redone[name]
        return replace(
            state,
            transcript=(*state.transcript, *outputs),
            done=tuple(event.name for event in self.graph.events if event.name in done),
            loops=tuple(taken.values()),
        )

    def outcome(self, state: CollaborationState) -> float:
        """Returns the score of the scored event's last output; 0 before the end of the collaboration.

        Each call calls the scorer, which may be expensive, once.

        Raises:
            ValueError: the score is not a number in [0, 1].
        """
        if not {*self.graph.finals} <= {*state.done}:
            return 0.0
        text = next(output for name, output in reversed(state.transcript) if name == self.scored_event)
        transcript = {"transcript": state.transcript} if self._scores_transcript else {}
        return check_score(self.scorer(state.row, text, **transcript), self.scorer)

    def without(self, state: CollaborationState, role: str) -> CollaborationState:
        if role not in self.removable:
            raise cannot_leave_out(self, role)
        removed = {event.name for event in self.graph.events if event.role == role}
        silent = {*state.done} - {name for name, _ in state.transcript}  # of roles that were removed before
        again = self.graph.hearers(removed) - removed - silent
        done = ({*state.done} - again) | removed
        return replace(
            state,
            transcript=tuple((name, output) for name, output in state.transcript if name not in removed | again),
            done=tuple(event.name for event in self.graph.events if event.name in done),
        )

    def state_to_json(self, state: CollaborationState) -> str:
        return json.dumps(asdict(state), separators=(",", ":"))

    def state_from_json(self, text: str) -> CollaborationState:
        with readable_state(self):
            state: CollaborationState = read(self.state_type, parse_json(text, broken_text=True), "a state")
            self.pending(state)
            return state

    def show(self, problem: str, heard: Sequence[tuple[str, str]]) -> str:
        """Returns the user message.

        Args:
            problem: the event's column of the task row.
            heard: the role and the nonempty output of each event that is seen, in the order of their creation.
        """
        context = "\n\n".join(output for _, output in heard)
        return f"Problem: {problem}\n\nContext: {context}"

    def _messages(self, event: Event, row: Mapping[str, Any], state: CollaborationState) -> list[dict[str, str]]:
        shown = self.show(normalise(row[event.column]), self._heard(event, state.transcript))
        return [
            {"role": "system", "content": self.roles[event.role]},
            {"role": "user", "content": normalise(shown)},
        ]

    def _heard(self, event: Event, transcript: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The role and the output of all events that an event sees, in the order of their creation."""
        last = {name: index for index, (name, _) in enumerate(transcript)}
        role_of = {event.name: event.role for event in self.graph.events}
        return [
            (role_of[name], output)
            for index, (name, output) in enumerate(transcript)
            if output and name in self.graph.sees[event.name] and (event.history or index == last[name])
        ]

    def _output(self, event: Event, reply: str) -> str:
        output = normalise(spoken(reply))
        return output if self.sanitise is None else normalise(self.sanitise(output))


def _called(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def graph(
    roles: Mapping[str, str],
    events: Sequence[Mapping[str, Any]],
    final: str | Sequence[str],
    scorer: Scorer | str,
    loops: Sequence[Mapping[str, Any]] = (),
    sanitise: Callable[[str], str] | str | None = None,
    scored_event: str | None = None,
) -> Collaboration:
    """Returns the collaboration of these roles and events. In a recipe:

        task: graph
        task_options:
          roles: {writer: Write a poem., critic: Say what to fix.}
          events:
            - {name: draft, role: writer}
            - {name: advice, role: critic, after: draft}
            - {name: poem, role: writer, after: advice, sees: [draft, advice]}
          final: poem
          scorer: my_package.scoring:beauty

    Args:
        roles, final, scorer, scored_event: as for `Collaboration`.
        events: the fields of each `Event`.
        loops: the fields of each `Loop`, with `until` as a `"package.module:function"`.
        sanitise: as for `Collaboration`, or a `"package.module:function"`.

    Raises:
        ValueError: a field is unknown or missing, a function cannot be imported, or as for `Collaboration`.
    """
    return Collaboration(
        roles=roles,
        events=[_of(Event, values, "name") for values in events],
        final=final,
        scorer=scorer,
        loops=[_of(Loop, {**values, "until": _function(values.get("until"))}, "source") for values in loops],
        sanitise=_function(sanitise),
        scored_event=scored_event,
    )


def _of(kind: type, values: Mapping[str, Any], key: str) -> Any:
    refuse_options(kind.__name__, kind, values.get(key, ""), values)
    return kind(**values)


def _function(named: Any) -> Any:
    return find("function", {}, named) if isinstance(named, str) else named
