"""The conversation of one role, in messages of text and in tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_credit.rollouts.episode import Context
from hf_credit.rollouts.interaction import Message, Request


@dataclass(frozen=True, kw_only=True)
class Thread:
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
    def after(cls, request: Request, text: str, ids: Context) -> Thread:
        """Returns the thread after the reply `text` to `request`, with all tokens up to its end."""
        reply = {"role": "assistant", "content": text}
        messages = (*request.messages, reply)
        return cls(messages=messages, ids=ids, tools=tuple(request.tools), rendered=request.rendered)


def if_same_tools(thread: Thread | None, tools: Sequence[Mapping[str, Any]]) -> Thread | None:
    """Returns the thread if it has these tools at its beginning, otherwise `None`."""
    return thread if thread is not None and thread.tools == tuple(tools) else None


def continuation(messages: Sequence[Message], thread: Thread | None) -> Sequence[Message] | None:
    """Returns the messages that `messages` adds to `thread`, or `None` if it does not continue it."""
    if thread is None or thread.rendered or len(messages) <= len(thread.messages):
        return None
    length = len(thread.messages)
    return messages[length:] if tuple(messages[:length]) == thread.messages else None
