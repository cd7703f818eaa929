"""The state of a program's run as a value: its replies so far, its waiting calls, and its conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hf_credit.agents.calls import assistant_message, digest, written
from hf_credit.agents.program import DEFAULT_ROLE
from hf_credit.content import Image, Text

Images = tuple[tuple[str, Image], ...]
"""The images of a call by the names that its JSON has in their places (`hf_credit.pictures.naming`)."""


@dataclass(frozen=True, kw_only=True)
class AnsweredCall:
    """A call with its reply.

    Attributes:
        call: the digest of its compared part.
        reply: the reply as JSON: its `text`, its `content` and `calls`, whether these are `cut` to the most that the
            call asks for, whether it `ended`, the text that `stop`s it, its numbers of `tokens`, those of the context
            first, and, if the call asks for them, `logprobs`, and whether it `fits` the format. Or `too_long`, the
            number of tokens of the call's context and the most, which the call got as an error.
    """

    call: str
    reply: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A call that waits for a reply.

    Attributes:
        event: the conversation that it continues or opens.
        call: the digest of its compared part.
        asked: the whole call, as JSON, without its images.
        replies: (index of the message, index of the reply) of its messages that are unchanged replies.
        images: of the call.
    """

    event: str
    call: str
    asked: str
    replies: tuple[tuple[int, int], ...] = ()
    images: Images = ()

    @property
    def whole(self) -> dict[str, Any]:
        """The whole call, whose messages have their images as `hf_credit.content.Content`."""
        asked: dict[str, Any] = json.loads(self.asked)
        images = dict(self.images)
        for message in asked["messages"]:
            if isinstance(message["content"], list):
                parts = (images[one["png"]] if "png" in one else Text(**one) for one in message["content"])
                message["content"] = tuple(parts)
        return asked


@dataclass(frozen=True, kw_only=True)
class LastCall:
    """The last call of a conversation.

    Attributes:
        event: the name of the conversation: the role, or `role#2` and so on for later ones of a role.
        length: the number of messages of the call.
        messages: their digest.
        replies: as in `Waiting`, with the reply to the call, and those to the same call before.
    """

    event: str
    length: int
    messages: str
    replies: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class AgentState:
    """The state of a run: the data to restore it in another run, and its waiting calls.

    Attributes:
        task: the columns of the task row, as JSON.
        seed: of all random numbers in the run.
        without: the removed roles.
        answered: the calls and replies so far.
        waiting: calls without a reply; none at the end.
        conversations: so far.
        kept: the number of replies that returned unchanged in later calls, and of all that returned.
        refused: the number of refused calls, without those whose context was too long.
        status: `"active"`, or the end: `"finished"`, `"raised"`, or `"stopped"` for too many calls.
        worth: the outcome.
        reward: of the last replies.
        owed: rewards since then that are of no reply, as before the first one: they are of the next replies.
    """

    task: str
    seed: int
    without: tuple[str, ...] = ()
    answered: tuple[AnsweredCall, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    conversations: tuple[LastCall, ...] = ()
    kept: tuple[int, int] = (0, 0)
    refused: int = 0
    status: Literal["active", "finished", "raised", "stopped"] = "active"
    worth: float = 0.0
    reward: float = 0.0
    owed: float = 0.0

    @property
    def past(self) -> tuple[Any, ...]:
        """The input of a run up to this state, by which live runs are found."""
        return self.task, self.seed, self.without, self.answered, tuple(one.call for one in self.waiting)

    def asked_at(self, place: int) -> dict[str, Any] | None:
        """Returns a call by its number in the run, from 1, as far as the waiting calls show it; else `None`."""
        for one in self.waiting:
            asked: dict[str, Any] = json.loads(one.asked)
            if place > len(self.answered):
                return asked
            for at, reply in one.replies:
                if reply == place - 1:
                    return {**asked, "messages": asked["messages"][:at]}
        return None


def with_replies(state: AgentState, answered: tuple[AnsweredCall, ...]) -> AgentState:
    """Returns the state after replies to waiting calls."""
    conversations = {one.event: one for one in state.conversations}
    waiting = list(state.waiting)
    for place, reply in enumerate(answered, start=len(state.answered)):
        call = waiting.pop([one.call for one in waiting].index(reply.call))
        if "too_long" in json.loads(reply.reply):
            continue
        messages = json.loads(call.asked)["messages"]
        length, own, before = len(messages), digest(messages), conversations.get(call.event)
        again = before is not None and (before.length, before.messages) == (length, own)
        replies = before.replies if before is not None and again else call.replies
        replies = (*replies, (length, place))
        conversations[call.event] = LastCall(event=call.event, length=length, messages=own, replies=replies)
    return replace(
        state,
        answered=(*state.answered, *answered),
        waiting=(),
        conversations=tuple(conversations.values()),
    )


def _said(reply: Mapping[str, Any]) -> dict[str, Any]:
    return assistant_message(reply["content"], reply["calls"])


def _goes_on(state: AgentState, last: LastCall, messages: Sequence[Any]) -> bool:
    return any(
        at == last.length < len(messages) and messages[at] == _said(json.loads(state.answered[place].reply))
        for at, place in last.replies
    )


def asking(state: AgentState, calls: Sequence[tuple[str, dict[str, Any], Images]], by_model: bool) -> AgentState:
    """Returns the state that waits for replies to these calls, each in the conversation that it continues or opens."""
    waiting: list[Waiting] = []
    kept, of = state.kept
    for call, asked, images in calls:
        messages, role = asked["messages"], asked["model"] if by_model else DEFAULT_ROLE
        taken = {one.event for one in waiting}
        of_role = [one for one in state.conversations if one.event.partition("#")[0] == role]
        fits = [
            one
            for one in of_role
            if one.event not in taken
            and one.length <= len(messages)
            and digest(messages[: one.length]) == one.messages
        ]
        replies: list[tuple[int, int]] = []
        if fits:
            # Of calls that were equal and made together, the one whose reply the program goes on with.
            last = max(fits, key=lambda one: (one.length, _goes_on(state, one, messages)))
            event = last.event
            returned = 0
            for at, place in last.replies:
                if at < len(messages):
                    reply = json.loads(state.answered[place].reply)
                    same = messages[at] == _said(reply)
                    if same and reply["stop"] is None and "cut" not in reply and at not in dict(replies):
                        replies.append((at, place))
                    returned = max(returned, same) if at == last.length else returned
            kept, of = kept + returned, of + (last.length < len(messages))
        else:
            known = {one.event for one in of_role} | {one for one in taken if one.partition("#")[0] == role}
            event = role if not known else f"{role}#{len(known) + 1}"
        waiting.append(Waiting(event=event, call=call, asked=written(asked), replies=tuple(replies), images=images))
    return replace(state, waiting=tuple(waiting), kept=(kept, of))
