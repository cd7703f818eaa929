"""The interface of tasks: which role replies next, and to which messages."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hf_credit.registry import name_of, remembered
from hf_credit.replies import ParsedReply, read_reply
from hf_credit.rollouts.episode import Ending

S = TypeVar("S")
W = TypeVar("W")
Message = dict[str, Any]
"""A message with `role` and `content`, text or other `hf_credit.content.Content`; an assistant's is text, perhaps a
`Reply`, or has `tool_calls`, as in chat templates."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a reply.

    Attributes:
        role: the role that replies, which selects the policy.
        messages: the conversation of this role so far.
        event: the event type (paper C3, eq. 1); by default the role. An event type has one conversation, so
            simultaneous requests have different types.
        tools: the tools for this reply, as in chat templates: JSON schemas of functions.
        max_tokens: maximum length of the reply, if below the sampler's limit. A longer reply is cut to its first
            tokens, which have the distribution of a sampler with this limit.
        rendered: whether the next context of the conversation is rendered anew, as a server does, so that the chat
            template decides what is left of the reply's thoughts; otherwise it continues the tokens of the reply.
        logprobs: whether the reply has its tokens with log-probabilities, for an Interaction with `reads_tokens`.
    """

    role: str
    messages: Sequence[Message]
    event: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    max_tokens: int | None = None
    rendered: bool = False
    logprobs: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self.event or self.role)


class Reply(str):
    """A reply as text, with its tokens and tool calls: for an Interaction with `reads_tokens`, and from a log.

    Attributes:
        ids: the tokens of the reply.
        ended: whether it ended with a special token; if not, it was truncated.
        said: its parts, if they are known, so that nobody has to read them from the text; without tools, no calls.
        context: the number of tokens of its context.
        logprobs: each token as text with its log-probability in nats, if the request asks for these.
    """

    ids: tuple[int, ...] = ()
    ended: bool = True
    said: ParsedReply | None = None
    context: int = 0
    logprobs: tuple[tuple[str, float], ...] = ()

    def __new__(cls, text: str, ids: Sequence[int] = (), ended: bool = True, said: ParsedReply | None = None) -> Reply:
        reply = super().__new__(cls, text)
        reply.ids, reply.ended, reply.said = tuple(ids), ended, said
        return reply

    @property
    def content(self) -> str:
        """Its text without thoughts and calls."""
        return str(self) if self.said is None else self.said.content

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """The name of each called tool, and its arguments as JSON, or as written if they cannot be read."""
        return () if self.said is None else self.said.written_calls


def said_in(reply: str, tools: Sequence[Mapping[str, Any]] = ()) -> ParsedReply:
    """Returns the parts of a reply: those that it has, else those of its text, as `hf_credit.replies.read_reply`."""
    said = getattr(reply, "said", None)
    return read_reply(reply, tools) if said is None else said


class Interaction(ABC, Generic[S]):
    """A task as transitions between states that are values, so that an episode can continue from any of them.

    A single agent in an environment, a reasoner followed by an actor and a vote of K agents are all Interactions. An
    Interaction holds only options. Its methods must not have side effects.

    `hf_credit.rollouts.capabilities` lists optional members, such as generated task rows, an oracle or the removal of
    a role; an Interaction simply defines them.

    Attributes:
        roles: the roles that reply, if they are known in advance.
        max_replies: maximum number of replies of an episode, if it is known.
    """

    roles: Collection[str] = ()
    max_replies: int | None = None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return name_of(self) or type(self).__name__

    def spec(self) -> dict[str, Any]:
        """Returns plain JSON values from which `hf_credit.tasks.TaskSpec` builds it again.

        They are `task` and `task_options`, the name or `"module:factory"` of its factory and all arguments, and for
        an environment `history`, `instructions` and `max_turns`. They are known for results of
        `hf_credit.collaborations.make` and of factories with `hf_credit.registry.remembers_its_call`.

        Raises:
            ValueError: they are unknown.
        """
        call = remembered(self)
        if call is None:
            raise ValueError(
                f"an Interaction must be made by a factory to be described, got a {type(self).__name__} made by hand; "
                "make it with hf_credit.collaborations.make('module:factory'), or implement its method spec."
            )
        return {"task": call[0], "task_options": call[1]}

    @abstractmethod
    def start(self, task: Mapping[str, Any], seed: int) -> S:
        """Returns the first state of a task; `seed` determines all randomness of the task."""

    @abstractmethod
    def pending(self, state: S) -> tuple[Request, ...]:
        """Returns the requests for replies in `state`, which are simultaneous; empty if the episode is over."""

    @abstractmethod
    def advance(self, state: S, replies: Sequence[str]) -> S:
        """Returns the state after the replies to `pending(state)`, in the same order."""

    @abstractmethod
    def outcome(self, state: S) -> float:
        """Returns the outcome of an episode that ended in `state`."""

    def reward(self, state: S) -> float:
        """Returns the reward of the step before `state`."""
        return 0.0

    def ending(self, state: S) -> Ending:
        """Returns how an episode that is over in `state` ended."""
        return Ending.FINISHED

    def metrics(self, state: S) -> Mapping[str, float]:
        """Returns the metrics of an episode that ended in `state`."""
        return {}

    def reseed(self, state: S, seed: int) -> S:
        """Returns `state` with the same past and another random future; by default there is no randomness.

        `pending` must not change; the engine raises an error if it does.
        """
        return state


class Wrapper(Interaction[W], Generic[W, S]):
    """An Interaction that wraps another and delegates all members that a subclass does not override.

    What it is, it does not delegate: made by hand it has no `spec`, and its `fingerprint` names its class and its
    plain attributes besides the wrapped one. A factory that `hf_credit.registry.remembers_its_call` describes it.

    If its states have another type, a subclass overrides `within`, which returns the inner state, and all methods that
    return a state: `start`, `advance`, `reseed`, and those of the delegated capabilities.

    Args:
        inner: the Interaction to wrap.
    """

    def __init__(self, inner: Interaction[S]) -> None:
        self.inner = inner

    def within(self, value: Any) -> Any:
        """Returns the inner state of a state; other arguments unchanged."""
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("inner", "evaluated", "fingerprint"):  # the last two say what it is
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        member = getattr(self.inner, name)
        if not inspect.isroutine(member):
            return member
        return lambda *args, **kwargs: member(*map(self.within, args), **kwargs)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def roles(self) -> Collection[str]:  # type: ignore[override]
        return self.inner.roles

    @property
    def max_replies(self) -> int | None:  # type: ignore[override]
        return self.inner.max_replies

    def start(self, task: Mapping[str, Any], seed: int) -> W:
        return self.inner.start(task, seed)  # type: ignore[return-value]

    def pending(self, state: W) -> tuple[Request, ...]:
        return self.inner.pending(self.within(state))

    def advance(self, state: W, replies: Sequence[str]) -> W:
        return self.inner.advance(self.within(state), replies)  # type: ignore[return-value]

    def outcome(self, state: W) -> float:
        return self.inner.outcome(self.within(state))

    def reward(self, state: W) -> float:
        return self.inner.reward(self.within(state))

    def ending(self, state: W) -> Ending:
        return self.inner.ending(self.within(state))

    def metrics(self, state: W) -> Mapping[str, float]:
        return self.inner.metrics(self.within(state))

    def reseed(self, state: W, seed: int) -> W:
        return self.inner.reseed(self.within(state), seed)  # type: ignore[return-value]


@contextmanager
def readable_state(interaction: Interaction[Any]) -> Iterator[None]:
    """Turns errors of reading a state into one sentence.

    Raises:
        ValueError: the block raised an error, as the value is not a state of the Interaction.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(
            f"a state must be a result of state_to_json of {interaction.name!r}, got {type(error).__name__}: "
            f"{str(error)[:200]}; use the task and the version it was written with."
        ) from None


def or_error(call: Callable[..., Any], *args: Any) -> Any:
    """Returns the result of a call, or the exception that it raised."""
    try:
        return call(*args)
    except Exception as error:
        return error
