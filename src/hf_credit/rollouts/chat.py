"""Conversations as token ids, such that a context only grows by appending."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any, cast

from jinja2 import TemplateError

from hf_credit.environments.actions import marked, write_call
from hf_credit.replies import (
    MARKS,
    MESSAGE_MARKS,
    ParsedReply,
    closing_of,
    open_thought,
    openings,
    read_reply,
)
from hf_credit.rollouts import rendering, templates
from hf_credit.rollouts.conversations import Conversation, continuation, if_same_tools
from hf_credit.rollouts.episode import Context
from hf_credit.rollouts.interaction import Message, Reply, Request, or_error, said_in
from hf_credit.rollouts.media import media_of
from hf_credit.rollouts.reply_parts import read_tokens
from hf_credit.rollouts.special_tokens import Hidden, SpecialTokens
from hf_credit.rollouts.templates import REPLY, SAID, USER, ChatTemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

TODAY = "today"
"""The argument of a template that has the date."""

_MOST_TOOL_LISTS = 64  # size of the cache; a program may generate any number of tools
_MARK_TOKENS = 8  # at the end of a context, enough for a mark that opens a thought


class Chat:
    """Renders conversations with a tokenizer's chat template.

    A template that writes the date gets one that stays: that of `template_kwargs["today"]`, as "2026-01-31", which is
    set to the present one if it is missing, and kept with the policy and its checkpoints.

    Messages that continue a `Conversation` have its tokens plus those of the new messages: replies are never decoded
    and encoded again. After a reply is the template's own text after an assistant's turn, from the token that ends it
    on; a reply that ended with another token has both. A turn that tools answered is rendered with its calls, without
    which some templates show no answer. Only the template writes special tokens: the text of a special token in a
    message is encoded letter by letter.

    Args:
        tokenizer: a tokenizer with a chat template and a padding token, or a processor that has one.
        template_kwargs: arguments of the template, such as `{"enable_thinking": False}`.
        ends: further tokens that end a reply: `eos_token_id` of the model's generation settings.

    Raises:
        ChatTemplateError: a `ValueError`: the tokenizer has no chat template or padding token, or its template does
            not write every message once, removes or changes earlier replies, or does not terminate.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | ProcessorMixin,
        template_kwargs: Mapping[str, Any] | None = None,
        ends: int | Iterable[int] | None = None,
    ) -> None:
        self.media = media_of(tokenizer)
        tokenizer = cast("PreTrainedTokenizerBase", self.media.tokenizer)
        if not getattr(tokenizer, "chat_template", None):
            raise ChatTemplateError(
                f"the tokenizer must have a chat template, got {tokenizer.name_or_path!r} without one; "
                "set tokenizer.chat_template."
            )
        if tokenizer.pad_token_id is None:
            raise ChatTemplateError(
                f"the tokenizer must have a padding token, got {tokenizer.name_or_path!r} without one; "
                "set tokenizer.pad_token, to the end-of-text token if there is no other."
            )
        self.tokenizer = tokenizer
        self.template_kwargs = dict(template_kwargs or {})
        self._with_tools: dict[str, Chat] = {}
        self._dated: str | None = None  # the template, with a date that stays
        if "strftime_now" in str(tokenizer.chat_template):
            self.pin(self.template_kwargs.get(TODAY) or date.today().isoformat())
        self.tools: Sequence[Mapping[str, Any]] = self.template_kwargs.get("tools") or ()
        self._endless = ""  # how long the template took, if it was too slow once
        try:  # fails here instead of in an episode
            skeleton = self._render([USER]) + self._added_text([SAID, USER]) + self.media.skeleton(self._render)
        except (TemplateError, TypeError, AttributeError) as error:
            raise self._refused("render messages of text", f"that raises {error}") from None
        with suppress(TemplateError):  # not every template supports the system role
            skeleton += self._render([{"role": "system", "content": "?"}, USER])
        self._special = SpecialTokens(tokenizer, skeleton)
        self._require_messages()
        added = self._special.added
        self._turn_end = templates.turn_end(self._render, added)
        self._tool = next((str(tool.get("function", tool).get("name")) for tool in self.tools), "tool")
        self._calls_end = templates.calls_end(self._render, added, self._tool)
        self._most_calls: int | None = 1 if self._calls_end else 0  # in a turn
        with suppress(TemplateError):
            if self._calls_end and REPLY in self._render([USER, templates.called(["a", "b"])]):
                self._most_calls = None
        with suppress(TemplateError, ValueError):  # what it writes around the answer of a tool
            skeleton += self._added_text(self._turn([{"role": "tool", "content": "?"}], ""))
        with suppress(TemplateError):  # and around thoughts
            skeleton += self._render([USER, {**SAID, "reasoning_content": "?"}])
        self._special = SpecialTokens(tokenizer, skeleton + self._turn_end + self._calls_end)
        own = [self._id(name) for name in (self._turn_end, self._calls_end) if name]
        self._ends: set[int] = set()
        for some in (cast("int | None", tokenizer.eos_token_id), own, ends):
            self.also_end(some)
        self._in_messages = bool(self._special.marks({"<|message|>"}))
        self._marks = MARKS if self._in_messages else MARKS.difference(MESSAGE_MARKS)  # else these end turns
        self._shown = self._special.marks(self._marks)

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply: the tokenizer's, the template's after a turn, and those of the model."""
        return tuple(sorted(self._ends))

    def also_end(self, ends: int | Iterable[int] | None) -> None:
        """Adds tokens that end a reply, as the argument `ends`."""
        self._ends.update({ends} if isinstance(ends, int) else {*(ends or ())} - {None})  # as TRL has without an end

    def pin(self, today: str) -> None:
        """Sets the date that the template writes."""
        template = self.tokenizer.get_chat_template(tools=self.template_kwargs.get("tools"))
        self.template_kwargs[TODAY], self._dated = today, templates.dated(template, today)
        self._with_tools.clear()

    def with_kwargs(self, template_kwargs: Mapping[str, Any]) -> Chat:
        """Returns a chat with further arguments of the template, and the same end tokens."""
        other = Chat(self.media.processing_class, {**self.template_kwargs, **template_kwargs})
        self._ends |= other._ends
        other._ends = self._ends
        return other

    def telling_of(self, tools: Sequence[Mapping[str, Any]]) -> Chat:
        """Returns the chat with these tools at the beginning of each conversation; cached.

        Args:
            tools: JSON schemas of functions, as for `apply_chat_template`; this chat itself if empty.

        Raises:
            ValueError: the template does not support tools; the text of a tool, which may be untrusted, contains a
                special token, which the template would not change; or the tokenizer's `response_template` does not
                parse replies of this template.
        """
        if not tools:
            return self
        schemas = json.dumps(list(tools), ensure_ascii=False)
        if schemas not in self._with_tools:
            chat = self._new_with_tools(schemas)
            if len(self._with_tools) >= _MOST_TOOL_LISTS:
                self._with_tools.clear()
            self._with_tools[schemas] = chat
        return self._with_tools[schemas]

    def _new_with_tools(self, schemas: str) -> Chat:
        spelled = self._special.spelled(schemas)
        if spelled:
            raise ChatTemplateError(f"the text of a tool must contain no special token, got {spelled!r}; reword it.")
        chat = self.with_kwargs({"tools": json.loads(schemas)})
        rendered = chat._render([USER])
        if rendered == self._render([USER]):
            raise self._refused(
                "render tools",
                "that does not",
                "set another tokenizer.chat_template, for a model of ChatML that of Qwen 2.5, or give the task as an "
                "environment with action tags",
            )
        for answers in (1, 2):
            chat._require_answers(answers)
        chat._require_readable_calls()
        if getattr(self.tokenizer, "response_template", None) is not None:
            content = rendering.parse(self.tokenizer, "?", rendered).get("content")
            if content != "?":
                raise ChatTemplateError(
                    "tokenizer.response_template must parse replies of the chat template, got "
                    f"{str(content)[:100]!r} for '?'; set its start_anchor to the start of its replies."
                )
        return chat

    def _require_messages(self) -> None:
        contents = [f"\ue000{role}\ue001" for role in ("user", "assistant", "user again")]
        roles = ("user", "assistant", "user")
        text = self._render([{"role": role, "content": one} for role, one in zip(roles, contents, strict=True)])
        if not templates.shows_once(text, contents):
            raise self._refused("write every message once, and in order", "that does not")

    def _require_answers(self, count: int) -> None:
        """Refuses a template that does not show the answers of tools once and in order."""
        contents = [f"\ue000answer {number}\ue001" for number in range(count)]
        answers: list[Message] = [{"role": "tool", "content": one} for one in contents]
        try:
            text = self._added_text(self._turn(answers, ""))
        except TemplateError as error:
            raise self._refused("render the answers of tools", f"that raises {error}") from None
        if not templates.shows_once(text, contents):
            raise self._refused("write every answer of a tool once, and in order", "that does not")

    def _require_readable_calls(self) -> None:
        """Refuses a template that writes calls in a form that is never read."""
        names = [self._tool] * (2 if self._most_calls is None else 1)
        with suppress(TemplateError, TypeError, AttributeError):  # it writes no calls
            turn = templates.called(names, "?")
            body = templates.written_turn(self._render, turn, self._calls_end or self._turn_end) or ""
            read = read_tokens(self.tokenizer, body, self._special.ids(body), (), self.tools)
            found = [(call.name, call.arguments) for call in read.made]
            if self._tool in body and found != [(name, {"x": "?"}) for name in names]:
                raise self._refused(
                    "write calls of tools in a form that is read",
                    f"that writes {body.strip()[:200]!r}",
                    "set another tokenizer.chat_template, or, for programs, a response_template that parses it",
                )

    def _refused(self, rule: str, got: str, remedy: str = "set another tokenizer.chat_template") -> ChatTemplateError:
        return ChatTemplateError(
            f"the chat template must {rule}, got one of {self.tokenizer.name_or_path!r} {got}; {remedy}."
        )

    def context(
        self, messages: Sequence[Message], before: Conversation | None = None, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Context:
        """Returns the token ids of messages up to the next reply; appended to those of `before` if they continue it.

        Text parts of a message are joined by line breaks.
        """
        (ids,) = self.telling_of(tools)._contexts([(messages, if_same_tools(before, tools))])
        return ids

    def contexts(self, requests: Sequence[tuple[Request, Conversation | None]]) -> list[Context | Exception]:
        """Returns `context` of many conversations, rendered and encoded together; equal ones once.

        Args:
            requests: requests, each with its conversation.

        Returns:
            For each request the token ids, or the exception of the template or the tokenizer.
        """
        try:
            batches: dict[Chat, list[int]] = {}
            for index, (request, _) in enumerate(requests):
                batches.setdefault(self.telling_of(request.tools), []).append(index)
            contexts: dict[int, Context] = {}
            for chat, indices in batches.items():
                some = [requests[index] for index in indices]
                of_chat = [(one.messages, if_same_tools(conversation, one.tools)) for one, conversation in some]
                contexts.update(zip(indices, chat._contexts(of_chat), strict=True))
            return [contexts[index] for index in range(len(requests))]
        except Exception:  # one of them fails: render each separately
            return [or_error(self.context, one.messages, own, one.tools) for one, own in requests]

    def _contexts(self, requests: Sequence[tuple[Sequence[Message], Conversation | None]]) -> list[Context]:
        rendered: list[list[Message]] = []  # distinct
        hidden_tokens: list[Hidden | None] = []
        index_of: dict[Any, int] = {}
        parts: list[tuple[Context | None, int]] = []  # the prefix, and the index of the conversation
        for messages, conversation in requests:
            added = continuation(messages, conversation)
            if conversation is None or added is None:
                new = self._whole(messages)
            else:
                new = self._turn(added, conversation.messages[-1]["content"])
            index = index_of.setdefault((added is None, _key(new)), len(rendered))
            if index == len(rendered):
                visible, hidden = self._special.hide(new)
                rendered.append(visible if added is None else [USER, *visible])
                hidden_tokens.append(hidden)
            parts.append((None if conversation is None or added is None else conversation.ids, index))
        texts = [self._render(one) for one in rendered]
        for index in {index for prefix, index in parts if prefix is not None}:  # several conversations may share one
            if REPLY in texts[index]:
                texts[index] = self._behind_reply(rendered[index][1], texts[index])
        texts = list(map(self.media.rendered, texts, rendered))
        pairs = list(zip(texts, hidden_tokens, strict=True))
        plain = iter(self._special.many([text for text, hidden in pairs if hidden is None]))
        encoded = [next(plain) if hidden is None else hidden.encode(text) for text, hidden in pairs]
        ids = list(map(self.media.context, encoded, rendered))
        return [ids[index] if prefix is None else _join(prefix, ids[index]) for prefix, index in parts]

    def texts(self, replies: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]] = ()) -> list[str]:
        """Returns the text of each reply, without special tokens but those that mark thoughts and calls.

        Args:
            replies: in tokens; equal ones are decoded once.
            contexts: of the replies; a text begins with the mark of a thought that its context opens.
        """
        distinct = list(dict.fromkeys(map(tuple, replies)))
        text_of = dict(zip(distinct, self._decoded(distinct), strict=True))
        opened = map(self.opened, contexts or [()] * len(replies))
        return [mark + text_of[tuple(ids)] for ids, mark in zip(replies, opened, strict=True)]

    def opened(self, context: Sequence[int]) -> str:
        """Returns the mark of the thought that a context opens; empty without one."""
        return open_thought(str(self.tokenizer.decode(list(context[-_MARK_TOKENS:]))))

    def _decoded(self, replies: Sequence[tuple[int, ...]]) -> list[str]:
        if not self._shown:
            return self.tokenizer.batch_decode([list(ids) for ids in replies], skip_special_tokens=True)
        hidden = self._special.marks(None) - self._shown
        ended = (ids[:-1] if ids and ids[-1] in self._ends else ids for ids in replies)
        shown = [[one for one in ids if one not in hidden] for ids in ended]
        return self.tokenizer.batch_decode(shown, skip_special_tokens=False)

    def reply(
        self,
        ids: Sequence[int],
        context: Sequence[int] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        logprobs: Sequence[float] | None = None,
    ) -> Reply:
        """Returns a reply with its parts, which are read only if there are tools.

        Args:
            ids: the tokens of the reply.
            context: the tokens of its context.
            tools: the tools of the request.
            logprobs: of the tokens, in nats, if the request asks for them.
        """
        (text,) = self.texts([ids], [context])
        ended = bool(ids) and ids[-1] in self._ends
        said = read_tokens(self.tokenizer, text, ids, context, tools) if tools else read_reply(text)
        said = said if tools else ParsedReply(thoughts=said.thoughts, spoken=said.spoken, content=said.spoken)
        reply = Reply(text, ids, ended, said)
        reply.context = len(context)
        if logprobs is not None:
            reply.logprobs = tuple(zip(self.tokenizer.batch_decode([[one] for one in ids]), logprobs, strict=True))
        return reply

    def encode(self, text: str) -> tuple[int, ...]:
        """Returns the token ids of a text, none of which is special."""
        return tuple(self._special.encode(text))

    def reply_ids(
        self, text: str, context: Sequence[int] = (), tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[int, ...]:
        """Returns the token ids of a reply from its text, the inverse of `texts`, with the template's end of the turn.

        Marks of thoughts and calls are their tokens, and other special tokens letters. A text with marks of other
        templates, or calls as `hf_credit.environments.actions.marked` writes them, is written as the template writes
        its thoughts and, with tools, its calls, if that is read as the same.

        Args:
            text: the reply; the parts of a `Reply` that has them are not read again.
            context: in tokens; a thought that it opens and the text does not mention is closed first.
            tools: of the request; with these, a reply may end as a turn with calls.
        """
        chat = self.telling_of(tools)
        said = said_in(text, tools) if tools else None
        if said is not None and said.calls and chat._most_calls != 0:
            end, ids = chat._calls_end, chat._calls_as_written(text, said, context)
        else:
            end, ids = self._turn_end, chat._ids_of(chat._begun(text, context))
        last = self._id(end) if end else cast("int | None", self.tokenizer.eos_token_id)
        return (*ids, *([] if last is None else [last]))

    def answer_ids(
        self, before: str, answer: str, context: Sequence[int] = ()
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the token ids of the beginning of a reply that was not sampled, and those of the answer after it.

        Args:
            before: the text of the beginning.
            context: as for `reply_ids`.
        """
        return self._ids_of(self._begun(before, context)), self.encode(answer)

    def _ids_of(self, text: str) -> tuple[int, ...]:
        """The token ids of a reply without its end; only marks of thoughts and calls are special."""
        ends = self.tokenizer.convert_ids_to_tokens(list(self._ends))
        return tuple(self._special.encode(text, self._marks.difference(ends)))

    @functools.cached_property
    def _beginnings(self) -> tuple[str, str, str]:
        return templates.beginnings(self._render)

    def _begun(self, text: str, context: Sequence[int]) -> str:
        header = self._beginnings[2] if self._in_messages else ""
        return templates.begun(text, self.opened(context), *self._beginnings[:2], header)

    def _calls_as_written(self, text: str, said: ParsedReply, context: Sequence[int]) -> tuple[int, ...]:
        """The tokens of a turn with calls as the template writes it, if it is read as the same; else of its text, as
        also if that has the template's form and no marks that are data."""
        begun, thought, known = self._begun(text, context), "", getattr(text, "said", None)
        own = said
        if opened := self.opened(context):
            text = begun.partition(closing_of(opened))[2].lstrip()
            thought = begun.removesuffix(text)
            own = read_reply(text, self.tools) if known is None else dataclasses.replace(said, thoughts="")
        (shown,), hidden = self._special.hide(self._whole([{"role": "assistant", "content": Reply(text, said=own)}]))
        with suppress(TemplateError, TypeError):  # of arguments that the template does not expect
            if (body := templates.written_turn(self._render, shown, self._calls_end)) is not None:
                ids = tuple(self._special.ids(body) if hidden is None else hidden.encode(body))
                (written,) = self.texts([ids])
                read = read_tokens(self.tokenizer, written, ids, (), self.tools)
                same = (read.calls, read.thoughts.strip()) == (said.calls, own.thoughts.strip())
                neutral = all(marked(write_call(call.name, call.arguments)) in text for call in said.calls)
                foreign = not said.bad_calls and (
                    neutral or any(not self._special.marks({mark}) for mark in openings(text) - openings(written))
                )
                data = any(mark in str(call.arguments) for call in said.calls for mark in self._marks)
                if same and (foreign or (data and written == text)):
                    return (*self._ids_of(thought), *ids)
                if foreign:
                    return (*self._ids_of(thought), *self.encode(text))
        return self._ids_of(begun)

    def _id(self, name: str) -> int:
        return cast(int, self.tokenizer.convert_tokens_to_ids(name))

    def _whole(self, messages: Sequence[Message]) -> Sequence[Message]:
        """A conversation from its beginning, in the form of the template."""
        return templates.as_served(self.media.plain(messages), self.tools, self._most_calls)

    def _turn(self, added: Sequence[Message], said: str) -> list[Message]:
        """A placeholder of a reply with the text `said`, and the messages after it, in the form of the template."""
        added = list(self.media.plain(added))
        answers = list(itertools.takewhile(lambda message: message["role"] == "tool", added))
        if not answers or not self._calls_end:
            return [SAID, *added]
        turn = templates.called(templates.names_of(said, answers, self.tools)[: self._most_calls])
        return templates.as_served([turn, *added], self.tools, self._most_calls)

    def _render(self, messages: Sequence[Message], prompt: bool = True) -> str:
        took = self._endless  # do not wait again
        try:
            if not took:
                options: Any = {**self.template_kwargs, "chat_template": self._dated}
                return rendering.render(self.tokenizer, self.media.shown(messages), prompt, options)
        except TimeoutError as error:
            took = self._endless = str(error)
        except MemoryError as error:
            took = str(error)
        raise ChatTemplateError(
            f"a chat template must render within {rendering.RENDERING_SECONDS:g} seconds and the memory of a process, "
            f"got one of {self.tokenizer.name_or_path!r} that took {took}; set another tokenizer.chat_template."
        )

    def _added_text(self, turn: Sequence[Message]) -> str:
        """The template's text after the placeholder of a reply, the first of these messages."""
        return self._behind_reply(turn[0], self._render([USER, *turn]))

    def _behind_reply(self, turn: Message, text: str) -> str:
        _, found, rest = text.partition(REPLY)
        if not found:
            raise self._refused("keep earlier replies unchanged", "that does not")
        return rest[rest.index(self._calls_end) :] if "tool_calls" in turn else rest


def _key(messages: Sequence[Message]) -> tuple[Any, ...]:
    return tuple(
        tuple((key, value if isinstance(value, str) else repr(value)) for key, value in message.items())
        for message in messages
    )


def _join(prefix: Context, added: Context) -> Context:
    """Both, with the template's end token only once if the reply already has it."""
    return prefix + (added[1:] if prefix and added and prefix[-1] == added[0] else added)
