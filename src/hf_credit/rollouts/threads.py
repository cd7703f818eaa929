"""The conversation of one role, in messages of text and in tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    ids: tuple[int, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    rendered: bool = False

    @classmethod
    def after(cls, request: Request, text: str, ids: tuple[int, ...]) -> Thread:
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


def of_text(messages: Sequence[Message]) -> Sequence[Message]:
    """Returns the messages with text as content: parts are joined by line breaks, and missing content is empty text.

    Raises:
        ValueError: a part is not text.
    """
    if all(isinstance(message.get("content"), str) for message in messages):
        return messages
    return [{**message, "content": joined_parts(message.get("content"))} for message in messages]


def joined_parts(content: Any) -> str:
    """Returns the text of a message's content, which is text, parts of text or `None`.

    Raises:
        ValueError: a part is not text.
    """
    parts = [] if content is None else content if isinstance(content, list | tuple) else [content]
    texts: list[Any] = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a message must be text or parts of text, got {str(content)[:100]!r}; remove other parts.")
    return "\n".join(texts)
