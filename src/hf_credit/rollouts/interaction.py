"""Who acts when, on which messages: the one interface between rollouts and tasks."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hf_credit.registry import name_of, remembered
from hf_credit.rollouts.episode import Ending

S = TypeVar("S")
W = TypeVar("W")
Message = dict[str, Any]
"""`role` and `content`, which is text; of an assistant perhaps `tool_calls`, as chat templates take them."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A reply is wanted.

    Attributes:
        role: who is to reply, hence which policy does.
        messages: the conversation so far as that role sees it, in chat form (`role`, `content`).
        event: the type of the event this is (paper C3, eq. 1); the role itself if left out. An event type has one
            conversation, so what is asked at once is of different types.
        tools: that are offered for this reply, as chat templates take them: JSON schemas of functions.
        max_tokens: the longest reply, where it is to be shorter than the sampler's own limit. Of a longer one the
            first tokens are taken, which are drawn as those of a sampler with this limit are.
    """

    role: str
    messages: Sequence[Message]
    event: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self.event or self.role)


class Reply(str):
    """A reply as text without special tokens, with what of it is no text; an Interaction with `reads_tokens` gets it.

    Attributes:
        ids: its tokens.
        ended: whether it ended with a special token, as a reply does that was not cut.
        content: what it says beside tool calls; all of it where no tools were offered.
        calls: the name of each tool it calls, and the arguments as JSON.
    """

    ids: tuple[int, ...] = ()
    ended: bool = True
    content: str
    calls: tuple[tuple[str, str], ...] = ()

    def __new__(
        cls,
        text: str,
        ids: Sequence[int] = (),
        ended: bool = True,
        content: str | None = None,
        calls: Sequence[tuple[str, str]] = (),
    ) -> Reply:
        reply = super().__new__(cls, text)
        reply.ids, reply.ended, reply.calls = tuple(ids), ended, tuple(calls)
        reply.content = text if content is None else content
        return reply


class Interaction(ABC, Generic[S]):
    """A task as a walk over states that are values, so that a walk can start again from any of them.

    A single agent in an environment, a reasoner followed by an actor and a vote of K agents are all Interactions.
    An Interaction holds options only. None of its methods may change anything but what they return.

    What some tasks can do beyond this (tasks of their own, an oracle, a team without one of its roles, ...) are the
    members that `hf_credit.rollouts.capabilities` lists by who asks for them; whoever has one simply defines it.

    Attributes:
        roles: who speaks, where it is known beforehand.
        max_replies: how many replies an episode has at most, where it is known.
    """

    roles: Collection[str] = ()
    max_replies: int | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return name_of(self) or type(self).__name__

    def spec(self) -> dict[str, Any]:
        """Plain values, as JSON has them, from which `hf_credit.tasks.TaskSpec` builds it again.

        Either `environment` and `environment_options`, `history`, `instructions` and `max_turns`, or `collaboration`
        and `collaboration_options`: the name, or `"module:factory"`, of what returns it, and every argument of that.
        What `hf_credit.collaborations.make` or a factory with `hf_credit.registry.remembers_its_call` returned knows
        these.

        Raises:
            ValueError: it cannot be told, in one sentence.
        """
        noted = remembered(self)
        if noted is None:
            raise ValueError(
                f"an Interaction is described by the factory that made it, got a {type(self).__name__} made by hand; "
                "make it with hf_credit.collaborations.make('module:factory'), or give it a spec() of its own."
            )
        return {"collaboration": noted[0], "collaboration_options": noted[1]}

    @abstractmethod
    def start(self, task: Mapping[str, Any], seed: int) -> S:
        """The first state of a task; `seed` drives everything random that happens after it."""

    @abstractmethod
    def pending(self, state: S) -> tuple[Request, ...]:
        """Who acts now, and on which messages; empty when the walk is over."""

    @abstractmethod
    def advance(self, state: S, replies: Sequence[str]) -> S:
        """The state after the replies to `pending(state)`, in its order."""

    @abstractmethod
    def outcome(self, state: S) -> float:
        """What a walk that ended in `state` was worth."""

    def reward(self, state: S) -> float:
        """What the step that led to `state` paid."""
        return 0.0

    def ending(self, state: S) -> Ending:
        """How a walk that is over in `state` ended."""
        return Ending.FINISHED

    def metrics(self, state: S) -> Mapping[str, float]:
        """What is reported of a walk that ended in `state`."""
        return {}

    def reseed(self, state: S, seed: int) -> S:
        """`state` with other randomness ahead of it and the same past; by default there is no randomness.

        `pending` must ask for the same as before: an engine that finds another message refuses to go on.
        """
        return state


class Wrapper(Interaction[W], Generic[W, S]):
    """An Interaction round another, with all members of that one but those which a subclass redefines.

    Where its states are of another type, a subclass says by `within` how the inner one is found, and redefines what
    returns a state: `start`, `advance`, `reseed`, and those of the capabilities it hands on.

    Args:
        inner: what is played.
    """

    def __init__(self, inner: Interaction[S]) -> None:
        self.inner = inner

    def within(self, value: Any) -> Any:
        """What the inner Interaction is asked about in place of an argument: of a state the inner one."""
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        member = getattr(self.inner, name)
        if not inspect.isroutine(member):
            return member

        def ask(*args: Any, **kwargs: Any) -> Any:
            return member(*map(self.within, args), **kwargs)

        return ask

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def roles(self) -> Collection[str]:  # type: ignore[override]
        return self.inner.roles

    @property
    def max_replies(self) -> int | None:  # type: ignore[override]
        return self.inner.max_replies

    def spec(self) -> dict[str, Any]:
        return self.inner.spec()

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
    """Says in one sentence that what is read here is no state of an Interaction.

    Raises:
        ValueError: it is not.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"a state must be one that {interaction.name!r} wrote, got {type(error).__name__}: {str(error)[:200]}; "
            "use the task and the version it was written with."
        ) from None
