"""From messages to token ids, so that a context only ever grows by appending."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from hf_credit.environments.tool_calls import Call, read_calls
from hf_credit.rollouts.interaction import Message, Reply, Request
from hf_credit.rollouts.special_tokens import Hidden, SpecialTokens
from hf_credit.safe_io import TookTooLong, at_most

# Stands for a reply while a template is rendered around it. Private-use characters: no model text holds them.
_REPLY = "\ue000reply\ue001"
RENDERING_SECONDS = 60.0
"""Limit for all conversations of a round, which take milliseconds."""

_MOST_TOOL_LISTS = 64  # that are kept; a program that makes tools up has no end of them
_ANCHOR_TOKENS = 256  # of a context's end, which are enough to see how the template opened the reply

_ANY_REPLY = ({"role": "user", "content": "?"}, {"role": "assistant", "content": _REPLY})


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A conversation as one role has seen it, in tokens.

    Attributes:
        messages: the rendered messages, including the last reply.
        ids: the context of the last reply followed by the reply, as the model read and generated them.
        tools: shown at its beginning.
    """

    messages: tuple[Message, ...]
    ids: tuple[int, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def after(cls, request: Request, text: str, ids: tuple[int, ...]) -> Thread:
        """The thread after the reply `text` to `request`, with the tokens up to its end."""
        reply = {"role": "assistant", "content": text}
        return cls(messages=(*request.messages, reply), ids=ids, tools=tuple(request.tools))


class Chat:
    """Renders conversations with a tokenizer's chat template.

    A conversation that continues a `Thread` has its tokens plus those of the new messages. The model's output is never
    decoded and encoded again, whatever the template would do with it. Only the template writes special tokens: if a
    message contains the text of one, its letters are encoded.

    Args:
        tokenizer: with a chat template and a padding token.
        template_kwargs: passed on to the template, such as `{"enable_thinking": False}`.

    Raises:
        ValueError: the tokenizer has no chat template or padding token, or its template drops or changes earlier
            replies, or does not terminate.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any] | None = None) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                f"the tokenizer must have a chat template, got {tokenizer.name_or_path!r} without one; "
                "set tokenizer.chat_template."
            )
        if tokenizer.pad_token_id is None:
            raise ValueError(
                f"the tokenizer must have a padding token, got {tokenizer.name_or_path!r} without one; "
                "set tokenizer.pad_token, to the end-of-text token if there is no other."
            )
        self.tokenizer = tokenizer
        self.template_kwargs = dict(template_kwargs or {})
        self._endless = False
        user = {"role": "user", "content": "?"}
        skeleton = self._render([user]) + self._added_text([user])  # fails here rather than within an episode
        with suppress(TemplateError):  # not every template knows the role
            skeleton += self._render([{"role": "system", "content": "?"}, user])
        self._special = SpecialTokens(tokenizer, skeleton)
        self._telling: dict[str, Chat] = {}

    def telling_of(self, tools: Sequence[Mapping[str, Any]]) -> Chat:
        """The same chat with these tools at the beginning of each conversation; cached.

        Args:
            tools: JSON schemas of functions, as `apply_chat_template` takes them; none for this chat itself.

        Raises:
            ValueError: the template does not support tools; a tool's text contains a special token, which the template
                would write unchanged although it may be untrusted; or the tokenizer's `response_template` does not
                find the beginning of a reply of this template.
        """
        if not tools:
            return self
        told = json.dumps(list(tools), ensure_ascii=False)
        if told not in self._telling:
            chat = self._told(told)
            if len(self._telling) >= _MOST_TOOL_LISTS:
                self._telling.clear()
            self._telling[told] = chat
        return self._telling[told]

    def _told(self, told: str) -> Chat:
        spelled = self._special.spelled(told)
        if spelled:
            raise ValueError(f"the text of a tool must spell no special token, got {spelled!r}; reword it.")
        chat = Chat(self.tokenizer, {**self.template_kwargs, "tools": json.loads(told)})
        user = [{"role": "user", "content": "?"}]
        shown = chat._render(user)
        if shown == self._render(user):
            raise ValueError(
                f"the chat template must show tools, got one of {self.tokenizer.name_or_path!r} that does not; set "
                "another tokenizer.chat_template, or a tokenizer of a model that was taught tools."
            )
        if getattr(self.tokenizer, "response_template", None) is not None:
            read = self.tokenizer.parse_response("?", prefix=shown).get("content")
            if read != "?":
                raise ValueError(
                    "tokenizer.response_template must read a reply of the chat template as it is, got "
                    f"{str(read)[:100]!r} for '?'; set its start_anchor to what the template opens a reply with."
                )
        return chat

    def context(
        self, messages: Sequence[Message], thread: Thread | None = None, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[int, ...]:
        """The token ids of a conversation, ready for a reply; appended to `thread` if it continues that one.

        Text parts of a message are joined by line breaks.
        """
        chat, thread = self.telling_of(tools), _showing(thread, tools)
        added = _continuation(messages, thread)
        if thread is None or added is None:
            return chat._encode(_joined(messages), chat._render)
        return _join(thread.ids, chat._encode(_joined(added), chat._added_text))

    def contexts(self, asked: Sequence[tuple[Request, Thread | None]]) -> list[tuple[int, ...] | Exception]:
        """`context` of many conversations, rendered and encoded together; equal ones once.

        Args:
            asked: the requests, and the thread of each.

        Returns:
            For each its token ids, or the exception of the template or the tokenizer.
        """
        try:
            batches: dict[Chat, list[int]] = {}
            for place, (request, _) in enumerate(asked):
                batches.setdefault(self.telling_of(request.tools), []).append(place)
            found: dict[int, tuple[int, ...]] = {}
            for chat, places in batches.items():
                of_chat = [(asked[p][0].messages, _showing(asked[p][1], asked[p][0].tools)) for p in places]
                found.update(zip(places, chat._contexts(of_chat), strict=True))
            return [found[place] for place in range(len(asked))]
        except Exception:  # of one of them
            return [self._context_or_error(*one) for one in asked]

    def _context_or_error(self, request: Request, thread: Thread | None) -> tuple[int, ...] | Exception:
        try:
            return self.context(request.messages, thread, request.tools)
        except Exception as error:
            return error

    def _contexts(self, asked: Sequence[tuple[Sequence[Message], Thread | None]]) -> list[tuple[int, ...]]:
        conversations: list[list[Message]] = []
        taken_out: list[Hidden | None] = []
        places: dict[Any, int] = {}
        found: list[tuple[tuple[int, ...] | None, int]] = []  # what is continued, and the place of the conversation
        for messages, thread in asked:
            added = _continuation(messages, thread)
            told = _joined(messages if added is None else added)
            place = places.setdefault((added is None, _key(told)), len(conversations))
            if place == len(conversations):
                shown, hidden = self._special.hide(told)
                conversations.append(shown if added is None else [*_ANY_REPLY, *shown])
                taken_out.append(hidden)
            found.append((None if thread is None or added is None else thread.ids, place))
        if not conversations:
            return []
        texts = [str(text) for text in self._rendered(conversations)]
        for prefix, place in found:
            if prefix is not None and _REPLY in texts[place]:
                texts[place] = texts[place].partition(_REPLY)[2]
        plain = iter(self._special.many([t for t, out in zip(texts, taken_out, strict=True) if out is None]))
        ids = [
            tuple(next(plain) if hidden is None else hidden.encode(text))
            for text, hidden in zip(texts, taken_out, strict=True)
        ]
        return [ids[place] if prefix is None else _join(prefix, ids[place]) for prefix, place in found]

    def texts(self, replies: Sequence[Sequence[int]]) -> list[str]:
        """The text of each reply, without special tokens; equal ones are decoded once."""
        distinct = list(dict.fromkeys(map(tuple, replies)))
        texts = self.tokenizer.batch_decode([list(ids) for ids in distinct], skip_special_tokens=True)
        text_of = dict(zip(distinct, texts, strict=True))
        return [text_of[tuple(ids)] for ids in replies]

    def reply(self, ids: Sequence[int], context: Sequence[int] = (), tools: Sequence[Mapping[str, Any]] = ()) -> Reply:
        """A reply with its tool calls, which are parsed only if tools were offered.

        The tokenizer's `response_template` parses them, including special tokens; without one,
        `hf_credit.environments.tool_calls.read_calls` does. A reply with an unreadable call has none.

        Args:
            ids: its tokens.
            context: the tokens before it.
            tools: offered for it.
        """
        (text,) = self.texts([ids])
        ended = bool(ids) and ids[-1] in self.tokenizer.all_special_ids
        content, calls = read_reply(self.tokenizer, text, ids, context, tools) if tools else (text, [])
        written = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls]
        return Reply(text, ids, ended, content, written)

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of a text, none of which is special."""
        return tuple(self._special.encode(text))

    def reply_ids(self, text: str) -> tuple[int, ...]:
        """The token ids of a reply that was not sampled: those of its text, and the end of the turn."""
        return (*self.encode(text), self.tokenizer.eos_token_id)

    def _encode(self, messages: Sequence[Message], render: Callable[[Sequence[Message]], str]) -> tuple[int, ...]:
        shown, hidden = self._special.hide(messages)
        text = render(shown)
        return tuple(self._special.ids(text) if hidden is None else hidden.encode(text))

    def _render(self, messages: Sequence[Message]) -> str:
        return str(self._rendered(list(messages)))

    def _rendered(self, conversations: Any) -> Any:
        """The text of a conversation, or of each of a list of them.

        Raises:
            ValueError: the template, which may be untrusted, does not terminate.
        """
        try:
            if self._endless:  # for this conversation; the next may not wait as long
                raise TookTooLong
            with at_most(RENDERING_SECONDS):
                return self.tokenizer.apply_chat_template(
                    conversations, tokenize=False, add_generation_prompt=True, **self.template_kwargs
                )
        except TookTooLong:
            self._endless = True
            raise ValueError(
                f"a chat template must be rendered within {RENDERING_SECONDS:g} seconds, got one of "
                f"{self.tokenizer.name_or_path!r} that is not; set another tokenizer.chat_template."
            ) from None

    def _added_text(self, added: Sequence[Message]) -> str:
        """The template's text after a reply that `added` follows, including the end of the turn."""
        text = self._render([*_ANY_REPLY, *added])
        _, found, rest = text.partition(_REPLY)
        if not found:
            raise ValueError(
                f"the chat template must show earlier replies as they are, got one of "
                f"{self.tokenizer.name_or_path!r} that does not; set another tokenizer.chat_template."
            )
        return rest


def _key(messages: Sequence[Message]) -> tuple[Any, ...]:
    return tuple(
        tuple((key, value if isinstance(value, str) else repr(value)) for key, value in message.items())
        for message in messages
    )


def _joined(messages: Sequence[Message]) -> Sequence[Message]:
    """Messages whose content is text: parts are joined by line breaks, and missing content is empty text.

    Raises:
        ValueError: a part is not text.
    """
    if all(isinstance(message.get("content"), str) for message in messages):
        return messages
    return [{**message, "content": joined_parts(message.get("content"))} for message in messages]


def read_reply(
    tokenizer: PreTrainedTokenizerBase | None,
    text: str,
    ids: Sequence[int] = (),
    context: Sequence[int] = (),
    tools: Sequence[Mapping[str, Any]] = (),
) -> tuple[str, Sequence[Call]]:
    """The content of a reply without tool calls, and the calls; the whole text and no calls if one cannot be read.

    Args:
        tokenizer: whose `response_template` defines the format of calls; without either, that of
            `hf_credit.environments.tool_calls.read_calls`.
        text: of the reply, without special tokens.
        ids, context, tools: as for `Chat.reply`.
    """
    if getattr(tokenizer, "response_template", None) is None:
        calls = read_calls(text) or []
        return ("" if calls else text), calls
    assert tokenizer is not None
    try:
        prefix = list(context[-_ANCHOR_TOKENS:])
        parsed = tokenizer.parse_response(list(ids), prefix=prefix, tools=[dict(one) for one in tools])
        calls = list(_checked(parsed.get("tool_calls")))
    except (ValueError, TypeError, LookupError):
        return text, []
    content = parsed.get("content") or ""
    return (content.removesuffix(str(tokenizer.eos_token)).strip() if calls else text), calls


def joined_parts(content: Any) -> str:
    """The text of a message's content: text, parts of text, or none.

    Raises:
        ValueError: a part is not text.
    """
    parts = [] if content is None else content if isinstance(content, list | tuple) else [content]
    texts: list[Any] = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a message must be text or parts of text, got {str(content)[:100]!r}; leave out the rest.")
    return "\n".join(texts)


def _checked(calls: Any) -> Iterator[Call]:
    """The names and arguments of parsed tool calls.

    Raises:
        ValueError, TypeError, LookupError: one of them is invalid.
    """
    for call in calls or []:
        function = call.get("function", call)
        name, arguments = function["name"], function.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ValueError("a tool call has a name and arguments by name")
        yield name, arguments


def _showing(thread: Thread | None, tools: Sequence[Mapping[str, Any]]) -> Thread | None:
    """The thread, if its beginning shows these tools."""
    return thread if thread is not None and thread.tools == tuple(tools) else None


def _continuation(messages: Sequence[Message], thread: Thread | None) -> Sequence[Message] | None:
    """The messages that `messages` adds to `thread`, or `None` if it is another conversation."""
    if thread is None or len(messages) <= len(thread.messages):
        return None
    seen = len(thread.messages)
    return messages[seen:] if tuple(messages[:seen]) == thread.messages else None


def _join(prefix: tuple[int, ...], added: tuple[int, ...]) -> tuple[int, ...]:
    """Appends; if the model ended its turn, the template's end token is already there."""
    return prefix + (added[1:] if prefix and added and prefix[-1] == added[0] else added)
