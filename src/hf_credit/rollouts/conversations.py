"""The conversation of one role, in messages of text and in tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_credit.rollouts.episode import Context
from hf_credit.rollouts.interaction import Message, Request


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """The conversation of one role, in tokens.

    Attributes:
        messages: the rendered messages, including the last reply.
        ids: the tokens of the last reply's context and of the reply, as the model read and generated them.
        tools: the tools at its beginning.
        rendered: as in `Request`: the next context does not continue its tokens.
    """

    messages: tuple[Message, ...]
    ids: Context
    tools: tuple[Mapping[str, Any], ...] = ()
    rendered: bool = False

    @classmethod
    def after(cls, request: Request, text: str, ids: Context) -> Conversation:
        """Returns the conversation after the reply `text` to `request`, with all tokens up to its end."""
        reply = {"role": "assistant", "content": text}
        messages = (*request.messages, reply)
        return cls(messages=messages, ids=ids, tools=tuple(request.tools), rendered=request.rendered)


def if_same_tools(conversation: Conversation | None, tools: Sequence[Mapping[str, Any]]) -> Conversation | None:
    """Returns the conversation if it has these tools at its beginning, otherwise `None`."""
    return conversation if conversation is not None and conversation.tools == tuple(tools) else None


def continuation(messages: Sequence[Message], conversation: Conversation | None) -> Sequence[Message] | None:
    """Returns the messages that `messages` adds to `conversation`, or `None` if it does not continue it."""
    if conversation is None or conversation.rendered or len(messages) <= len(conversation.messages):
        return None
    length = len(conversation.messages)
    return messages[length:] if tuple(messages[:length]) == conversation.messages else None
