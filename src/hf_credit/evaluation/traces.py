"""Credit of recorded traces: logs of chat completions, and each `TrainingTrace` of OpenEnv."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hf_credit import methods
from hf_credit.agents.calls import canonical_call, canonical_messages, digest, shown_message, written
from hf_credit.agents.program import DEFAULT_ROLE
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.environments.tool_calls import marked, write_call
from hf_credit.evaluation.credited import CreditedEpisode, credited_episodes
from hf_credit.methods import DecisionCredit, Method
from hf_credit.methods.base import one_number
from hf_credit.rollouts import Decision, Ending, Episode, Interaction, LocalContext, Request, by_episode
from hf_credit.rollouts.failures import in_one_line
from hf_credit.safe_io import MOST_BYTES, parse_json
from hf_credit.validators import finite_number

_GIVEN = frozenset({"groups"})  # what an estimator can ask of recorded traces
_GROUPS = ("task_id", "group_id", "group", "task")
_NAMES = ("id", "trace_id", "episode_id")
_OUTCOMES = ("reward", "score", "outcome")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What somebody was asked for: the state before a recorded reply.

    Attributes:
        role: who was.
        messages: each as JSON.
        tools: as JSON, those that were offered, or of which it is known that there are any.
    """

    role: str
    messages: tuple[str, ...] = ()
    tools: str = "[]"


class RecordedTraces(Interaction[Asked]):
    """What was recorded, for estimators that ask what was asked for. It cannot be played."""

    replayable = False

    def start(self, task: Mapping[str, Any], seed: int) -> Asked:
        raise ValueError(
            f"recorded traces cannot be played, got the task {str(task)[:100]!r}; credit them as they are."
        )

    def pending(self, state: Asked) -> tuple[Request, ...]:
        messages = [json.loads(message) for message in state.messages]
        return (Request(role=state.role, messages=messages, tools=json.loads(state.tools)),)

    def advance(self, state: Asked, replies: Sequence[str]) -> Asked:
        return self.start({}, 0)

    def outcome(self, state: Asked) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A recorded trace.

    Attributes:
        line: where it stands, counted from 1.
        name: its own, or its line.
        group: of what task it is; traces of one task are compared.
        episode: its replies as decisions. A reply whose tokens are not known counts as one token.
        with_tokens: whether its tokens are known.
    """

    line: int
    name: str
    group: str
    episode: Episode
    with_tokens: bool


@dataclass(frozen=True, kw_only=True)
class CreditedTraces:
    """Recorded traces and the credit of their replies.

    Attributes:
        method: its name.
        traces: those that could be read.
        credit: by trace, of each reply; `None` where it gets none.
        failures: the line of each of the others, and what is wrong with it.
    """

    method: str
    traces: tuple[Trace, ...]
    credit: tuple[tuple[DecisionCredit, ...], ...]
    failures: tuple[tuple[int, str], ...] = ()

    @cached_property
    def groups(self) -> Counter[str]:
        """How many traces there are of each task."""
        return Counter(trace.group for trace in self.traces)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row a reply: `line`, `trace`, `turn` (from 0), `role` and `credit`, the advantage, the mean where tokens
        have one each; then one a line that could not be read, with the reason in `error`."""
        for trace, credit in zip(self.traces, self.credit, strict=True):
            for turn, (decision, own) in enumerate(zip(trace.episode.decisions, credit, strict=True)):
                known = {"line": trace.line, "trace": trace.name, "turn": turn, "role": decision.role}
                yield {**known, "credit": one_number(own), "error": None}
        for line, error in self.failures:
            yield {"line": line, **dict.fromkeys(("trace", "turn", "role", "credit")), "error": error}

    @property
    def most_telling(self) -> int:
        """The place of the trace whose credits differ most."""

        def spread(credit: Sequence[DecisionCredit]) -> float:
            known = [value for value in map(one_number, credit) if value is not None]
            return max(known) - min(known) if known else -1.0

        return max(range(len(self.traces)), key=lambda place: spread(self.credit[place]))

    def episode(self, place: int) -> CreditedEpisode:
        """A trace as `hf_credit.evaluation.episode_page` shows it, with what others of its task replied there.

        Args:
            place: among `traces`.
        """
        of_task = [at for at, trace in enumerate(self.traces) if trace.group == self.traces[place].group]
        batch = _batch([self.traces[at] for at in of_task])
        credit = [self.credit[at] for at in of_task]
        return credited_episodes(batch, credit, None, interaction=RecordedTraces())[of_task.index(place)]


def credit_traces(source: str | Path | Iterable[str | Mapping[str, Any]], method: Method) -> CreditedTraces:
    """The credit of recorded replies by a method that needs neither replays nor a model.

    A trace is an object with `messages` of chat completions, in which each of the assistant's is a reply, or with the
    `turns` of an OpenEnv `TrainingTrace`, one reply each. Beside them it has what it was worth, `reward`, `score` or
    `outcome`, or `rewards` with a number for each reply, which the outcome is the sum of where it is not given; its
    task, `task_id`, `group_id`, `group` or `task`, where it is left out the messages before the first reply; perhaps
    `tools`, and a name, `id`, `trace_id` or `episode_id`. An assistant's `name` is its role.

    Args:
        source: a file of JSON lines, or lines or objects.
        method: of `hf_credit.methods.make`.

    Raises:
        ValueError: the method needs more than recorded traces are, or no line can be read.
        OSError: the file cannot be read.
    """
    refuse_method(method)
    traces: list[Trace] = []
    failures: list[tuple[int, str]] = []
    lines = _lines(Path(source)) if isinstance(source, str | Path) else source
    for number, line in enumerate(lines, start=1):
        if isinstance(line, str) and not line.strip():
            continue
        try:
            traces.append(_trace(parse_json(line, broken_text=True) if isinstance(line, str) else line, number))
        except ImportError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            sentence = isinstance(error, ValueError) and "\n" not in str(error)
            failures.append((number, str(error) if sentence else in_one_line(error)))
    if not traces:
        first = f"line {failures[0][0]}: {failures[0][1]}" if failures else "an empty file"
        raise ValueError(f"a file of traces must have one that can be read, got {first}")
    if not all(trace.with_tokens for trace in traces):
        refuse_method(method, with_tokens=False)
    collected, context = _batch(traces), LocalContext()
    context.interaction = RecordedTraces()
    estimator: Any = method.estimator
    bound = estimator.bind(context.interaction) if hasattr(estimator, "bind") else estimator
    given = by_episode(collected.episodes, bound(collected, context, method.memory).decisions)
    credit = tuple(
        tuple(one if decision.trained else None for decision, one in zip(episode.decisions, own, strict=True))
        for episode, own in zip(collected.episodes, given, strict=True)
    )
    return CreditedTraces(method=method.name, traces=tuple(traces), credit=credit, failures=tuple(failures))


def refuse_method(method: Method, with_tokens: bool = True) -> None:
    """Refuses a method that needs more than recorded traces are.

    Args:
        method: to give credit.
        with_tokens: whether the tokens of all traces are known.

    Raises:
        ValueError: it does; the sentence names what, and the methods that do not.
    """
    if needs := _needs(method, with_tokens):
        raise ValueError(
            f"credit of recorded traces must come from what was recorded, got the method {method.name!r}, which needs "
            f"{' and '.join(needs)}; take {', '.join(methods_of_traces(with_tokens))}."
        )


def methods_of_traces(with_tokens: bool = True) -> list[str]:
    """The methods that give credit to recorded traces.

    Args:
        with_tokens: whether the tokens of all traces are known.
    """
    found = []
    for name in methods.known():
        with suppress(ValueError):  # it cannot be made without options
            found += [] if _needs(methods.make(name), with_tokens) else [name]
    return found


def _needs(method: Method, with_tokens: bool) -> list[str]:
    estimator: Any = method.estimator
    critics = method.critics or hasattr(estimator, "critic_specs")
    wanted = {
        "replays": getattr(method.collector, "replaying", False),
        "a critic": critics,
        "rules that cut episodes as they are played": method.wrap is not None,
        "tokens": getattr(estimator, "reads_tokens", False) and not with_tokens,
    }
    return [*sorted(getattr(estimator, "needs", frozenset()) - _GIVEN), *(name for name, one in wanted.items() if one)]


def _batch(traces: Sequence[Trace]) -> RolloutBatch:
    """The traces of one task as a group."""
    places = {group: place for place, group in enumerate(dict.fromkeys(trace.group for trace in traces))}
    rollouts = tuple(Rollout(episode=trace.episode, instance=places[trace.group]) for trace in traces)
    return RolloutBatch(rollouts=rollouts, rows=len(places))


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file; one that is too long, cut, which no JSON is."""
    with path.open("rb") as file:
        while line := file.readline(MOST_BYTES):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MOST_BYTES)
            yield line.decode("utf-8", "surrogateescape")


def _trace(row: Any, number: int) -> Trace:
    if not isinstance(row, Mapping) or ("messages" in row) == ("turns" in row):
        raise ValueError("a trace must be an object with messages or turns, got something else; mend the line.")
    with_tokens = "turns" in row
    decisions, start = (_of_turns if with_tokens else _of_messages)(row)
    if not decisions:
        raise ValueError("a trace must have a reply of an assistant, got none; leave it out.")
    rewards = row.get("rewards")
    if rewards is None:
        rewards = [0.0] * len(decisions)
    elif not isinstance(rewards, list) or len(rewards) != len(decisions):
        raise ValueError(
            f"rewards must have one number for each of {len(decisions)} replies, got {str(rewards)[:100]}; give one "
            "each, or a reward of the whole trace."
        )
    rewards = [_number("a reward", one) for one in rewards]
    worth = next((row[name] for name in _OUTCOMES if row.get(name) is not None), None)
    if worth is None and row.get("rewards") is None:
        raise ValueError(
            f"a trace must have one of {', '.join(_OUTCOMES)} and rewards, got none; add what it was worth."
        )
    episode = Episode(
        decisions=tuple(
            Decision(step=step, reward=reward, **one)
            for step, (one, reward) in enumerate(zip(decisions, rewards, strict=True))
        ),
        outcome=sum(rewards) if worth is None else _number("what a trace was worth", worth),
        ending=Ending.FINISHED,
    )
    name = next((row[name] for name in _NAMES if isinstance(row.get(name), str)), str(number))
    group = next((written([name, row[name]]) for name in _GROUPS if row.get(name) is not None), None)
    return Trace(
        line=number,
        name=name,
        group=written(["", start]) if group is None else group,
        episode=episode,
        with_tokens=with_tokens,
    )


Replies = tuple[list[dict[str, Any]], Any]
"""What decisions are made of, and what a trace began with."""


def _of_messages(row: Mapping[str, Any]) -> Replies:
    tools = canonical_call({"messages": row["messages"], "tools": row.get("tools")})["tools"]
    messages = [canonical_messages([message])[0] for message in row["messages"]]
    offered = written(tools or _called(messages))
    replies: list[dict[str, Any]] = []
    before: tuple[str, ...] = ()
    start, context = None, ""
    for raw, message in zip(row["messages"], messages, strict=True):
        shown = shown_message(message)
        if message["role"] == "assistant":
            text, start = _text(message), before if start is None else start
            replies.append(_reply(raw, text, before, offered, (int(context or "0", 16),), (0,)))
            shown = {"role": "assistant", "content": text}
        before = (*before, written(shown))
        context = digest([context, shown])
    return replies, start


def _of_turns(row: Mapping[str, Any]) -> Replies:
    try:
        from openenv.core.harness.training import TrainingTrace
    except ImportError as error:
        raise ImportError(
            f"a trace with turns is read by the package openenv, got {error}; install hf-credit[openenv]."
        ) from None
    trace = TrainingTrace.model_validate({"turns": row["turns"], "schema_version": row.get("schema_version", 1)})
    replies: list[dict[str, Any]] = []
    known: dict[str, str] = {}  # one text for what every turn shows again
    for turn in trace.turns:
        asked = [_shown(message) for message in turn.request.get("messages") or ()]
        before = tuple(known.setdefault(text, text) for text in map(written, asked))
        answers = turn.response.get("choices") or [{}]
        raw = answers[0].get("message") or {}
        (message,) = canonical_messages([{"role": "assistant", **raw}])
        offered = written(turn.request.get("tools") or _called([message]))
        reply = _reply(
            raw, _text(message), before, offered, tuple(turn.prompt_token_ids), tuple(turn.completion_token_ids)
        )
        learned = any(turn.loss_mask[len(turn.prompt_token_ids) :])
        replies.append({**reply, "logprobs": tuple(turn.per_token_logps), "trained": learned})
    first = replies[0] if replies else {}
    return replies, first and (first["state"].messages or first["context_ids"])


def _reply(
    raw: Mapping[str, Any],
    text: str,
    before: tuple[str, ...],
    offered: str,
    context: tuple[int, ...],
    action: tuple[int, ...],
) -> dict[str, Any]:
    name = raw.get("name")
    role = name if isinstance(name, str) and name else DEFAULT_ROLE
    return {
        "role": role,
        "state": Asked(role=role, messages=before, tools=offered),
        "context_ids": context,
        "action_ids": action,
        "logprobs": None,
        "action_text": text,
    }


def _shown(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is shown: one of an assistant as its text, which replies are known by."""
    (one,) = canonical_messages([message])
    return {"role": "assistant", "content": _text(one)} if one["role"] == "assistant" else shown_message(one)


def _text(message: Mapping[str, Any]) -> str:
    """What an assistant said, its tool calls marked."""
    calls = [
        marked(write_call(call["name"], call["arguments"]) if isinstance(call["arguments"], dict) else written(call))
        for call in message.get("tool_calls", ())
    ]
    return "\n".join(part for part in (message["content"], *calls) if part)


def _called(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools that are called, where nobody says which were offered."""
    names = {call["name"] for message in messages for call in message.get("tool_calls", ())}
    return [{"type": "function", "function": {"name": name}} for name in sorted(names)]


def _number(name: str, value: Any) -> float:
    return finite_number(name, float(value) if isinstance(value, bool) else value)
