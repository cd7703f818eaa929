"""Whether a program repeats itself, and where it does not: what every restored state depends on."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_credit.agents.calls import difference
from hf_credit.agents.interaction import AgentInteraction, AgentState
from hf_credit.agents.runs import DivergedRunError
from hf_credit.environments.randomness import stream
from hf_credit.environments.tool_calls import marked, write_call
from hf_credit.rollouts.failures import in_one_line
from hf_credit.rollouts.interaction import Request

SETTLE = 0.05  # seconds, long enough to see calls at once

Replies = Callable[[Request, random.Random], str]


@dataclass(kw_only=True)
class Findings:
    """What a check of a program found.

    Attributes:
        tasks: how many were run, each twice.
        calls: that were made in the first runs.
        restored: states that were restored.
        seconds: that restoring took.
        together: the most calls at once.
        kept: replies that came back as they were made, and of how many.
        statuses: how runs ended.
        problems: where it did not repeat itself or failed, in words; none of a program that can be replayed.
    """

    tasks: int = 0
    calls: int = 0
    restored: int = 0
    seconds: float = 0.0
    together: int = 0
    kept: tuple[int, int] = (0, 0)
    statuses: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def made_up(request: Request, draws: random.Random) -> str:
    """A reply of nobody's: a call of a tool that is offered, or words that were shown."""
    if request.tools and draws.random() < 2 / 3:
        function = draws.choice(list(request.tools))["function"]
        return marked(write_call(function["name"], _example(function.get("parameters") or {}, draws)))
    words = str(request.messages[-1].get("content") or "?").split() or ["?"]
    return " ".join(draws.choices(words, k=3))


def check(interaction: AgentInteraction, tasks: Iterable[Mapping[str, Any]], replies: Replies = made_up) -> Findings:
    """Runs a program twice on each task with the same replies, and restores every state of the first run.

    Args:
        interaction: the program; calls at once are seen where its `settle` is above 0.
        tasks: rows.
        replies: what the model replies to a request, drawn from the random numbers.
    """
    found = Findings()
    for number, task in enumerate(tasks, start=1):
        found.tasks += 1
        try:
            first, again = (_walk(interaction, task, number, replies) for _ in range(2))
        except Exception as error:
            found.problems.append(f"task {number}: {in_one_line(error)}")
            continue
        last = first[-1]
        found.calls += len(last.answered)
        found.statuses[last.status] = found.statuses.get(last.status, 0) + 1
        found.together = max(found.together, *(len(state.waiting) for state in first))
        found.kept = found.kept[0] + last.kept[0], found.kept[1] + last.kept[1]
        found.problems += _parting(number, first, again)
        for state in first:
            if state.waiting:
                began = time.monotonic()
                try:
                    interaction.restore(state)
                    found.restored += 1
                except DivergedRunError as error:
                    found.problems.append(f"task {number}, restored: {_told(first, error)}")
                except Exception as error:
                    found.problems.append(f"task {number}, restored: {in_one_line(error)}")
                found.seconds += time.monotonic() - began
    return found


def _walk(interaction: AgentInteraction, task: Mapping[str, Any], number: int, replies: Replies) -> list[AgentState]:
    states = [interaction.start(task, number)]
    while requests := interaction.pending(states[-1]):
        draws = stream(number, "check", len(states))
        states.append(interaction.advance(states[-1], [replies(request, draws) for request in requests]))
    return states


def _parting(number: int, first: Sequence[AgentState], again: Sequence[AgentState]) -> list[str]:
    """The first call of a second run that is not as in the first."""
    for one, other in zip(first, again, strict=False):
        asked, instead = ([json.loads(waiting.asked) for waiting in state.waiting] for state in (one, other))
        if [waiting.call for waiting in one.waiting] != [waiting.call for waiting in other.waiting]:
            place = len(one.answered) + 1
            told = [difference(*pair) for pair in zip(asked, instead, strict=False) if pair[0] != pair[1]]
            counts = f"{len(asked)} calls, then {len(instead)}"
            return [f"task {number}, run again, call {place}: {told[0] if told else counts}"]
    if first[-1].worth != again[-1].worth:
        return [f"task {number}, run again: it was worth {first[-1].worth:g}, then {again[-1].worth:g}"]
    return []


def _told(states: Sequence[AgentState], error: DivergedRunError) -> str:
    if error.asked is None:
        return f"call {error.place} was not made"
    for state in states:
        for place, waiting in enumerate(state.waiting, start=len(state.answered) + 1):
            if place == error.place:
                return f"call {place}: {difference(json.loads(waiting.asked), error.asked)}"
    return f"call {error.place} was made, and not before"


def _example(schema: Mapping[str, Any], draws: random.Random) -> Any:
    """A value that a JSON schema of a tool's arguments takes, as far as its types tell."""
    if schema.get("enum"):
        return draws.choice(list(schema["enum"]))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return {name: _example(one, draws) for name, one in (schema.get("properties") or {}).items()}
    if kind == "array":
        return [_example(schema.get("items") or {}, draws)]
    plain = {"integer": draws.randrange(10), "number": draws.randrange(10) / 2, "boolean": draws.random() < 0.5}
    return plain.get(str(kind), None if kind == "null" else draws.choice(["a", "b", "select 1"]))
