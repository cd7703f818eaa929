"""Checks that a program is deterministic, on which every restored state depends."""

from __future__ import annotations

import functools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_credit.agents.calls import difference
from hf_credit.agents.runs import DivergedRunError
from hf_credit.agents.states import AgentState, Waiting
from hf_credit.environments.actions import marked, write_call
from hf_credit.environments.randomness import stream
from hf_credit.rollouts.failures import in_one_line
from hf_credit.rollouts.interaction import Interaction, Request

SETTLE = 0.05  # seconds, enough to see simultaneous calls

Replies = Callable[[Request, random.Random], str]


@dataclass(kw_only=True)
class Findings:
    """The results of a check of a program.

    Attributes:
        tasks: the number of tasks, each run twice.
        calls: in the first runs, also in those that failed.
        restored: the number of restored states.
        seconds: for restoring them.
        together: the most simultaneous calls.
        kept: the number of replies that returned unchanged in later calls, and of all that returned.
        statuses: the number of runs by status.
        failures: tasks that could not be run, in words; also a program that calls no model.
        differences: between runs, in words; none for a program that can be replayed.
    """

    tasks: int = 0
    calls: int = 0
    restored: int = 0
    seconds: float = 0.0
    together: int = 0
    kept: tuple[int, int] = (0, 0)
    statuses: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Failures and differences."""
        return [*self.failures, *self.differences]


def made_up(request: Request, draws: random.Random) -> str:
    """Returns a dummy reply: a call of an offered tool, or words of the prompt."""
    if request.tools and draws.random() < 2 / 3:
        function = draws.choice(list(request.tools))["function"]
        return marked(write_call(function["name"], _example(function.get("parameters") or {}, draws)))
    words = str(request.messages[-1].get("content") or "?").split() or ["?"]
    return " ".join(draws.choices(words, k=3))


def check(interaction: Any, tasks: Iterable[Mapping[str, Any]], replies: Replies = made_up) -> Findings:
    """Runs a program twice on each task with the same replies, and restores every state of the first run.

    Args:
        interaction: an `AgentInteraction`; the check sees simultaneous calls if its `settle` is above 0.
        tasks: rows.
        replies: returns the model's reply to a request, from random numbers.
    """
    findings = Findings()
    for number, task in enumerate(tasks, start=1):
        findings.tasks += 1
        first, again = list[AgentState](), list[AgentState]()
        try:
            for states in (first, again):
                states.extend(_walk(interaction, task, number, replies))
        except Exception as error:
            findings.failures.append(f"task {number}: {in_one_line(error)}")
            continue
        finally:
            findings.calls += len(first[-1].answered) + len(first[-1].waiting) if first else 0  # all were answered
        last = first[-1]
        findings.statuses[last.status] = findings.statuses.get(last.status, 0) + 1
        findings.together = max(findings.together, *(len(state.waiting) for state in first))
        findings.kept = findings.kept[0] + last.kept[0], findings.kept[1] + last.kept[1]
        findings.differences += _first_difference(number, first, again)
        for state in first:
            if state.waiting:
                began = time.monotonic()
                try:
                    interaction.restore(state)
                    findings.restored += 1
                except DivergedRunError as error:
                    findings.differences.append(f"task {number}, restored: {error.got}")
                except Exception as error:
                    findings.differences.append(f"task {number}, restored: {in_one_line(error)}")
                findings.seconds += time.monotonic() - began
    if findings.statuses and not findings.calls:
        findings.failures.append("no run called a model; a program must call the one at model.base_url")
    return findings


def _walk(
    interaction: Interaction[AgentState], task: Mapping[str, Any], number: int, replies: Replies
) -> Iterator[AgentState]:
    """The states of a run. Replies depend on their calls alone, since those at once may come in any order."""
    state, made = interaction.start(task, number), Counter[str]()
    yield state
    while requests := interaction.pending(state):
        said = []
        for request, waiting in zip(requests, state.waiting, strict=True):
            draws = stream(number, "check", waiting.call, made[waiting.call])
            schema = None if request.tools or replies is not made_up else json.loads(waiting.asked).get("format")
            said.append(json.dumps(_example(schema, draws)) if schema else replies(request, draws))
            made[waiting.call] += 1
        state = interaction.advance(state, said)
        yield state


def _first_difference(number: int, first: Sequence[AgentState], again: Sequence[AgentState]) -> list[str]:
    """Describes the first call of a second run that differs from the first run."""
    one, other = ([waiting for state in states for waiting in state.waiting] for states in (first, again))
    gone, new = _without(one, other), _without(other, one)
    if gone or new:
        place = min((*gone, *new)) + 1
        what = f"{len(one)} calls, then {len(other)}"
        if gone and new:
            what = difference(*(json.loads(calls[min(left)].asked) for calls, left in ((one, gone), (other, new))))
        return [f"task {number}, run again, call {place}: {what}"]
    if first[-1].worth != again[-1].worth:
        return [f"task {number}, run again: its outcome was {first[-1].worth:g}, then {again[-1].worth:g}"]
    return []


def _without(calls: Sequence[Waiting], others: Sequence[Waiting]) -> list[int]:
    """The places of calls that others lack."""
    left, places = Counter(one.call for one in others), []
    for place, one in enumerate(calls):
        left[one.call] -= 1
        places += [place] if left[one.call] < 0 else []
    return places


def _example(schema: Mapping[str, Any], draws: random.Random, whole: Mapping[str, Any] | None = None) -> Any:
    """Returns a value that fits the types of a JSON schema, a part of the whole one, to which its references point."""
    whole = schema if whole is None else whole
    if "$ref" in schema:
        schema = functools.reduce(lambda part, name: part[name], schema["$ref"].split("/")[1:], whole)
    if schema.get("anyOf"):
        return _example(schema["anyOf"][-1], draws, whole)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return draws.choice(list(schema["enum"]))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return {name: _example(one, draws, whole) for name, one in (schema.get("properties") or {}).items()}
    if kind == "array":
        items = schema.get("items") or {}
        return [] if "$ref" in items else [_example(items, draws, whole)]  # it may refer to itself
    plain = {"integer": draws.randrange(10), "number": draws.randrange(10) / 2, "boolean": draws.random() < 0.5}
    return plain.get(str(kind), None if kind == "null" else draws.choice(["a", "b", "select 1"]))
