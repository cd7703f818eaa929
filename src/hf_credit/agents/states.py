"""Where a run of a program is, as a value: what was replied, what it waits for, and its conversations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_credit.agents.calls import assistant_message, digest, written
from hf_credit.agents.program import DEFAULT_ROLE
from hf_credit.agents.runs import Answered


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A call that waits for a reply.

    Attributes:
        event: the conversation that it continues or opens.
        call: the digest of what of it is compared.
        asked: all that it asks for, as JSON.
        replies: (which message, which reply) of the messages in it that are replies as they were made.
    """

    event: str
    call: str
    asked: str
    replies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What was asked last in a conversation.

    Attributes:
        event: its name: the role, or `role#2` and so on for the second and later ones of a role.
        length: how many messages that call had.
        messages: their digest.
        replies: as in `Waiting`, with the reply to that call.
    """

    event: str
    length: int
    messages: str
    replies: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class AgentState:
    """Where a run is: all that it takes to bring another one there, and what it waits for.

    Attributes:
        task: the columns of the task row, as JSON.
        seed: of all that is random in the run.
        without: the roles that were left out.
        answered: what was called and replied so far.
        waiting: what it waits for; nothing where it is over.
        conversations: so far.
        kept: how many replies came back in later calls as they were made, and of how many.
        status: `"active"`, or how it is over: `"finished"`, `"raised"`, or `"stopped"` for calling too often.
        worth: what it was worth.
        reward: what it paid for the last replies.
    """

    task: str
    seed: int
    without: tuple[str, ...] = ()
    answered: tuple[Answered, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    conversations: tuple[Conversation, ...] = ()
    kept: tuple[int, int] = (0, 0)
    status: str = "active"
    worth: float = 0.0
    reward: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> AgentState:
        """From plain values, as `dataclasses.asdict` gives them."""
        found = {name: _frozen(value) for name, value in values.items()}
        kinds: dict[str, Any] = {"answered": Answered, "waiting": Waiting, "conversations": Conversation}
        for name, kind in kinds.items():
            found[name] = tuple(kind(**{key: _frozen(value) for key, value in one.items()}) for one in found[name])
        return cls(**found)

    @property
    def past(self) -> tuple[Any, ...]:
        """What a run has to be told to get here: by this, live ones are found."""
        return self.task, self.seed, self.without, self.answered, tuple(one.call for one in self.waiting)


def with_replies(state: AgentState, answered: tuple[Answered, ...]) -> AgentState:
    """The state with its waiting calls replied to: their conversations go on."""
    conversations = {one.event: one for one in state.conversations}
    for place, one in enumerate(state.waiting, start=len(state.answered)):
        messages = json.loads(one.asked)["messages"]
        conversations[one.event] = Conversation(
            event=one.event,
            length=len(messages),
            messages=digest(messages),
            replies=(*one.replies, (len(messages), place)),
        )
    return dataclasses.replace(
        state,
        answered=(*state.answered, *answered),
        waiting=(),
        conversations=tuple(conversations.values()),
    )


def asking(state: AgentState, calls: Sequence[tuple[str, dict[str, Any]]], by_model: bool) -> AgentState:
    """The state that waits for replies to these calls, each in the conversation that it continues or opens."""
    waiting: list[Waiting] = []
    kept, of = state.kept
    for call, asked in calls:
        messages, role = asked["messages"], asked["model"] if by_model else DEFAULT_ROLE
        taken = {one.event for one in waiting}
        own = [one for one in state.conversations if one.event.partition("#")[0] == role]
        fits = [
            one
            for one in own
            if one.event not in taken
            and one.length <= len(messages)
            and digest(messages[: one.length]) == one.messages
        ]
        replies: list[tuple[int, int]] = []
        if fits:
            last = max(fits, key=lambda one: one.length)
            event = last.event
            for at, place in last.replies:
                if at < len(messages):
                    reply = json.loads(state.answered[place].reply)
                    same = messages[at] == assistant_message(reply["content"], reply["calls"])
                    replies += [(at, place)] if same else []
                    if at == last.length:
                        kept, of = kept + same, of + 1
        else:
            known = {one.event for one in own} | {one for one in taken if one.partition("#")[0] == role}
            event = role if not known else f"{role}#{len(known) + 1}"
        waiting.append(Waiting(event=event, call=call, asked=written(asked), replies=tuple(replies)))
    return dataclasses.replace(state, waiting=tuple(waiting), kept=(kept, of))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
