"""Credit of recorded traces: logs of chat completions, and OpenEnv's `TrainingTrace`."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from hf_credit import methods
from hf_credit.agents.calls import canonical_messages, canonical_tools, digest, shown_message, written
from hf_credit.agents.program import DEFAULT_ROLE
from hf_credit.agents.white_lists import MESSAGE_LIST, is_empty, unheeded
from hf_credit.boundary import Range, Worth, check, read
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.content import text_of
from hf_credit.environments.actions import marked, write_call
from hf_credit.evaluation.credited import CreditedEpisode, credited_episodes, spread, with_few_alternatives
from hf_credit.methods import DecisionCredit, Method
from hf_credit.methods.base import absent_inputs
from hf_credit.optional_packages import needed
from hf_credit.replies import ParsedReply, listed_calls, read_reply
from hf_credit.rollouts import Decision, Ending, Episode, Interaction, LocalContext, Request, by_episode
from hf_credit.rollouts.failures import in_one_line
from hf_credit.rollouts.interaction import Message, Reply
from hf_credit.rollouts.rows import one_number
from hf_credit.safe_io import lines_of, parse_json

T = TypeVar("T")

_GIVEN = frozenset({"groups"})  # the needs of estimators that recorded traces meet
_GROUPS = ("task_id", "group_id", "group", "task")
_NAMES = ("id", "trace_id", "episode_id")
_OUTCOMES = ("reward", "score", "outcome")

_Worth = Worth | bool
_Ids = tuple[Annotated[int, Range(0, 2**31 - 1)], ...]
_Logprobs = tuple[Annotated[float, Range(most=1e-3)], ...]


@dataclass(frozen=True, kw_only=True)
class RecordedState:
    """The state before a recorded reply: its request. Equal requests are equal states.

    Attributes:
        role: the role that replies.
        context: a digest of the messages.
        tools: the offered tools as JSON; if they are not recorded, the tools that are called.
        trace: the messages of the trace, which its states share.
        length: the number of messages before the reply.
    """

    role: str
    context: str = ""
    tools: str = "[]"
    trace: tuple[Message, ...] = field(default=(), compare=False, repr=False)
    length: int = field(default=0, compare=False)


class RecordedTraces(Interaction[RecordedState]):
    """An Interaction that returns recorded requests, for estimators that read them. It cannot be played."""

    replayable = False

    def start(self, task: Mapping[str, Any], seed: int) -> RecordedState:
        raise ValueError(
            f"recorded traces cannot be played, got the task {str(task)[:100]!r}; use a method without replays."
        )

    def pending(self, state: RecordedState) -> tuple[Request, ...]:
        messages = state.trace[: state.length]
        return (Request(role=state.role, messages=messages, tools=json.loads(state.tools)),)

    def advance(self, state: RecordedState, replies: Sequence[str]) -> RecordedState:
        return self.start({}, 0)

    def outcome(self, state: RecordedState) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A recorded trace.

    Attributes:
        line: its line in the file, from 1.
        name: its name, or its line.
        group: the key of its task; traces of the same task are compared.
        episode: its replies as decisions. A reply counts as one token if its tokens are not known.
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
        method: the name of the method.
        traces: the readable traces.
        credit: for each trace, the credit of each reply; `None` without credit.
        failures: the number of each other line, and its error.
        absent: a sentence for each input of the method that no trace has.
    """

    method: str
    traces: tuple[Trace, ...]
    credit: tuple[tuple[DecisionCredit, ...], ...]
    failures: tuple[tuple[int, str], ...] = ()
    absent: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> Counter[str]:
        """The number of traces of each task."""
        return Counter(trace.group for trace in self.traces)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row per reply with `line`, `trace`, `turn` (from 0), `role` and `credit`, its advantage (the mean
        if tokens have their own); then a row per unreadable line, with the reason in `error`."""
        for trace, credit in zip(self.traces, self.credit, strict=True):
            for turn, (decision, own) in enumerate(zip(trace.episode.decisions, credit, strict=True)):
                known = {"line": trace.line, "trace": trace.name, "turn": turn, "role": decision.role}
                yield {**known, "credit": one_number(own), "error": None}
        for line, error in self.failures:
            yield {"line": line, **dict.fromkeys(("trace", "turn", "role", "credit")), "error": error}

    @property
    def largest_spread(self) -> int:
        """The index of the trace with the largest credit differences."""

        return max(range(len(self.traces)), key=lambda place: spread(map(one_number, self.credit[place])))

    def episode(self, place: int) -> CreditedEpisode:
        """Returns the view of a trace for `hf_credit.evaluation.episode_page`, with up to 8 replies of other traces of
        its task as alternatives of each of its own.

        Args:
            place: the index in `traces`.
        """
        of_task = [at for at, trace in enumerate(self.traces) if trace.group == self.traces[place].group]
        batch = _batch([self.traces[at] for at in of_task])
        credit = [self.credit[at] for at in of_task]
        (found,) = credited_episodes(batch, credit, None, interaction=RecordedTraces(), only=of_task.index(place))
        return replace(found, decisions=tuple(map(with_few_alternatives, found.decisions)))


def credit_traces(source: str | Path | Iterable[str | Mapping[str, Any]], method: Method) -> CreditedTraces:
    """Computes the credit of recorded replies, by a method that needs neither replays nor a model.

    A trace is an object with `messages` of chat completions, where each message of the assistant is a reply, or with
    the `turns` of an OpenEnv `TrainingTrace`, with one reply each. Further keys are

    - the outcome: `reward`, `score` or `outcome`; or `rewards`, one number per reply, by default the sum of these;
    - the task: `task_id`, `group_id`, `group` or `task`; by default the messages before the first reply;
    - optionally `tools`, and the name of the trace: `id`, `trace_id` or `episode_id`.

    The `name` of an assistant's message is its role.

    Args:
        source: a file of JSON lines, or an iterable of lines or objects.
        method: from `hf_credit.methods.make`.

    Raises:
        ValueError: the method needs more than recorded traces contain, or no line can be read.
        OSError: the file cannot be read.
    """
    refuse_method(method)
    traces, failures = read_lines(source, trace_of)
    if not all(trace.with_tokens for trace in traces):
        refuse_method(method, with_tokens=False)
    collected, context = _batch(traces), LocalContext()
    context.interaction = RecordedTraces()
    method = method.bind(context.interaction)
    given = by_episode(collected.episodes, method.estimator(collected, context, method.memory).decisions)
    credit = tuple(
        tuple(one if decision.trained else None for decision, one in zip(episode.decisions, own, strict=True))
        for episode, own in zip(collected.episodes, given, strict=True)
    )
    found = CreditedTraces(method=method.name, traces=tuple(traces), credit=credit, failures=tuple(failures))
    absent = absent_inputs([{name: max(values) for name, values in context.metrics.items()}])
    return replace(found, absent=tuple(absent))


def read_lines(
    source: str | Path | Iterable[str | Mapping[str, Any]], read: Callable[[Any, int], T]
) -> tuple[list[T], list[tuple[int, str]]]:
    """Returns what `read` makes of the lines of a file, and the number of each line that it cannot read, with why.

    Args:
        source: as for `credit_traces`.
        read: takes the JSON value of a line and its number, from 1.

    Raises:
        ValueError: no line can be read.
        OSError: the file cannot be read.
    """
    found: list[T] = []
    failures: list[tuple[int, str]] = []
    lines = lines_of(source) if isinstance(source, str | Path) else source
    for number, line in enumerate(lines, start=1):
        if isinstance(line, str) and not line.strip():
            continue
        try:
            found.append(read(parse_json(line, broken_text=True) if isinstance(line, str) else line, number))
        except ImportError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            sentence = isinstance(error, ValueError) and "\n" not in str(error)
            failures.append((number, str(error) if sentence else in_one_line(error)))
    if not found:
        first = f"line {failures[0][0]}: {failures[0][1]}" if failures else "an empty file"
        raise ValueError(f"a file of traces must have a readable trace, got {first}")
    return found, failures


def refuse_method(method: Method, with_tokens: bool = True) -> None:
    """Raises an error if a method needs more than recorded traces contain.

    Args:
        with_tokens: whether the tokens of all traces are known.

    Raises:
        ValueError: the method needs more; the message names its needs, and the methods without them.
    """
    if needs := _needs(method, with_tokens):
        raise ValueError(
            f"a method for recorded traces must need nothing else, got {method.name!r}, which needs "
            f"{' and '.join(needs)}; use one of {', '.join(methods_of_traces(with_tokens))}."
        )


def methods_of_traces(with_tokens: bool = True) -> list[str]:
    """Returns the names of the methods that can credit recorded traces."""
    found = []
    for name in methods.known():
        with suppress(ValueError):  # the method requires options
            found += [] if _needs(methods.make(name), with_tokens) else [name]
    return found


def _needs(method: Method, with_tokens: bool) -> list[str]:
    estimator: Any = method.estimator
    wanted = {
        **dict.fromkeys(sorted(getattr(estimator, "needs", frozenset()) - _GIVEN), True),
        "replays": getattr(method.collector, "replaying", False),
        "a critic": method.critics or hasattr(estimator, "critic_specs"),
        "episodes that are cut while they are played": method.wrap is not None,
        "tokens": getattr(estimator, "reads_tokens", False) and not with_tokens,
    }
    return [name for name, needed in wanted.items() if needed]


def _batch(traces: Sequence[Trace]) -> RolloutBatch:
    """Returns the traces as a batch in which those of the same task are a group."""
    places = {group: place for place, group in enumerate(dict.fromkeys(trace.group for trace in traces))}
    rollouts = tuple(Rollout(episode=trace.episode, instance=places[trace.group]) for trace in traces)
    return RolloutBatch(rollouts=rollouts, rows=len(places))


def trace_of(row: Any, number: int, scored: bool = True) -> Trace:
    """Returns the trace of an object as in `credit_traces`.

    Args:
        number: its line.
        scored: whether it must have an outcome; if not, that of a trace without is NaN.

    Raises:
        ValueError: it is no trace; and other errors about values of a wrong type.
    """
    if not isinstance(row, Mapping) or ("messages" in row) == ("turns" in row):
        raise ValueError("a trace must be an object with messages or turns, got something else; correct the line.")
    with_tokens = "turns" in row
    decisions, start = (_of_turns if with_tokens else _of_messages)(row)
    if not decisions:
        raise ValueError("a trace must have a reply of an assistant, got none; remove it.")
    worths = [check(name, row.get(name), _Worth | None, sender="a trace") for name in _OUTCOMES]
    rewards = check("rewards", row.get("rewards"), list[_Worth] | None, sender="a trace")
    if rewards is not None and len(rewards) != len(decisions):
        raise ValueError(
            f"rewards must have one number for each of {len(decisions)} replies, got {str(rewards)[:100]}; correct "
            "them, or set reward for the whole trace."
        )
    outcome = next((worth for worth in worths if worth is not None), None)
    unscored = outcome is None and rewards is None
    if unscored and scored:
        raise ValueError(f"a trace must have one of {', '.join(_OUTCOMES)} or rewards, got none; add one of them.")
    rewards = rewards or [0.0] * len(decisions)
    episode = Episode(
        decisions=tuple(
            Decision(step=step, role=one["state"].role, reward=float(reward), **one)
            for step, (one, reward) in enumerate(zip(decisions, rewards, strict=True))
        ),
        outcome=math.nan if unscored else float(sum(rewards) if outcome is None else outcome),
        ending=Ending.FINISHED,
    )
    name = next((row[name] for name in _NAMES if isinstance(row.get(name), str)), str(number))
    task = next(([name, row[name]] for name in _GROUPS if row.get(name) is not None), ["", start])
    return Trace(line=number, name=name, group=written(task), episode=episode, with_tokens=with_tokens)


Replies = tuple[list[dict[str, Any]], Any]
"""The arguments of decisions, and the start of the trace, which identifies its task by default."""


def _of_messages(row: Mapping[str, Any]) -> Replies:
    given = row["messages"] or ()
    unheeded(given, MESSAGE_LIST, "messages", "a trace")
    offered = canonical_tools(row.get("tools") or row.get("functions") or ())
    messages = canonical_messages(given, merged=False)
    tools = written(offered or _called(messages))
    trace = tuple(map(_shown, messages))
    replies: list[dict[str, Any]] = []
    context = ""
    for place, (raw, message) in enumerate(zip(given, messages, strict=True)):
        if message["role"] == "assistant":
            if not isinstance(raw.get("content"), str) and is_empty({**message, "role": None}):
                raise ValueError(
                    f"messages[{place}] of a trace, an assistant's, must have content, thoughts, calls or a refusal, "
                    "got none; remove it."
                )
            tokens = {"context_ids": (int(context or "0", 16),), "action_ids": (0,), "logprobs": None}
            role = raw.get("name") or DEFAULT_ROLE
            state = RecordedState(role=role, context=context, tools=tools, trace=trace, length=place)
            replies.append(
                {"state": state, "action_text": trace[place]["content"], "trained": raw.get("weight") != 0, **tokens}
            )
        context = digest([context, trace[place]])
    return replies, list(map(written, trace[: replies[0]["state"].length])) if replies else ()


def _of_turns(row: Mapping[str, Any]) -> Replies:
    openenv = needed("a trace with turns needs", "openenv.core.harness.training", "openenv")
    captured = openenv.TrainingTrace.model_validate(
        {"turns": row["turns"], "schema_version": row.get("schema_version", 1)}
    )
    replies: list[dict[str, Any]] = []
    known: dict[str, Message] = {}  # shares equal messages, as every turn repeats earlier ones
    for place, turn in enumerate(captured.turns):
        asked = turn.request.get("messages") or []
        answers = turn.response.get("choices") or [{}]
        raw = {"role": "assistant", **(answers[0].get("message") or {})}
        unheeded(asked, MESSAGE_LIST, f"turns[{place}].request.messages", "a trace")
        unheeded(raw, MESSAGE_LIST[0], f"turns[{place}].response.choices[0].message", "a trace")
        messages = [_shown(message) for message in canonical_messages(asked, merged=False)]
        (message,) = canonical_messages([raw])
        state = RecordedState(
            role=raw.get("name") or DEFAULT_ROLE,
            context=digest(messages),
            tools=written(
                canonical_tools(turn.request.get("tools") or turn.request.get("functions") or ()) or _called([message])
            ),
            trace=tuple(known.setdefault(written(one), one) for one in messages),
            length=len(messages),
        )
        tokens = {
            "context_ids": read(_Ids, list(turn.prompt_token_ids), "the tokens of a turn"),
            "action_ids": read(_Ids, list(turn.completion_token_ids), "the tokens of a turn"),
            "logprobs": read(_Logprobs, list(turn.per_token_logps), "the log-probabilities of a turn"),
        }
        learned = any(turn.loss_mask[len(turn.prompt_token_ids) :])
        replies.append({"state": state, "action_text": _reply(message), "trained": learned, **tokens})
    first = replies[0] if replies else {}
    return replies, first and (list(map(written, first["state"].trace)) or first["context_ids"])


def _shown(message: Mapping[str, Any]) -> Message:
    """Returns a message in the form in which contexts are compared; that of an assistant only with its text."""
    assistant = message["role"] == "assistant"
    return {"role": "assistant", "content": _reply(message)} if assistant else shown_message(message)


def _reply(message: Mapping[str, Any]) -> str:
    """Returns an assistant's message as a reply, whose text is as of `Chat.texts`, with marked thoughts and calls.

    Raises:
        ValueError: a thought contains what ends it.
    """
    thoughts, content = message.get("reasoning_content", ""), text_of(message["content"])
    opening = f"<think>\n{thoughts}\n</think>\n\n" if thoughts else ""
    if opening and read_reply(opening).thoughts != thoughts.strip():
        raise ValueError(
            f"a thought must not contain marks of thoughts or calls, got {thoughts[:100]!r}; remove them."
        )
    calls = message.get("tool_calls", ())
    marks = [marked(write_call(call["name"], call["arguments"])) for call in calls]
    spoken = "\n".join(filter(None, (content, *marks)))
    if not (calls or thoughts) or read_reply(content) != ParsedReply(spoken=content, content=content):
        return opening + spoken  # what marks the content has are read with the others
    parts = {"thoughts": thoughts.strip(), "spoken": spoken.strip(), "content": content.strip()}
    return Reply(opening + spoken, said=ParsedReply(**parts, made=listed_calls(calls)))


def _called(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the tools that are called, as the offered ones if those are not recorded."""
    names = {call["name"] for message in messages for call in message.get("tool_calls", ())}
    return [{"type": "function", "function": {"name": name}} for name in sorted(names)]
