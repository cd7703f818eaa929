"""From messages to token ids, so that a context only ever grows by appending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_credit.rollouts.interaction import Message

# Stands for a reply while a template is rendered around it. Private-use characters: no model text holds them.
_REPLY = "\ue000reply\ue001"


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A conversation as one role has seen it, in tokens.

    Attributes:
        messages: what was rendered, the last reply included.
        ids: the context of the last reply followed by the reply, as the model got and produced them.
    """

    messages: tuple[Message, ...]
    ids: tuple[int, ...]


class Chat:
    """Renders conversations with a tokenizer's chat template.

    A conversation that continues a `Thread` is its tokens plus the tokens of what was added. The model's output is
    never decoded and encoded again, whatever the template would make of it.

    Args:
        tokenizer: with a chat template and a padding token.
        template_kwargs: passed on to the template, such as `{"enable_thinking": False}`.

    Raises:
        ValueError: the tokenizer lacks a chat template or a padding token, or its template drops or alters the
            replies it is given.
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
        self._added_text([{"role": "user", "content": "?"}])  # fails here rather than in the middle of an episode

    def contexts(
        self, conversations: Sequence[Sequence[Message]], threads: Sequence[Thread | None]
    ) -> list[tuple[int, ...]]:
        """The token ids of each conversation, ready for a reply; appended to its thread where it continues one."""
        texts: list[str] = []
        prefixes: list[tuple[int, ...]] = []
        for messages, thread in zip(conversations, threads, strict=True):
            added = _continuation(messages, thread)
            if thread is None or added is None:
                texts.append(self._render(messages))
                prefixes.append(())
            else:
                texts.append(self._added_text(added))
                prefixes.append(thread.ids)
        if not texts:
            return []
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [_join(prefix, tuple(ids)) for prefix, ids in zip(prefixes, encoded, strict=True)]

    def texts(self, replies: Sequence[Sequence[int]]) -> list[str]:
        """The text of each reply, without special tokens."""
        return self.tokenizer.batch_decode([list(ids) for ids in replies], skip_special_tokens=True)

    def _render(self, messages: Sequence[Message]) -> str:
        text = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, **self.template_kwargs
        )
        return str(text)

    def _added_text(self, added: Sequence[Message]) -> str:
        """What the template puts behind a reply when `added` follows it, the end of the turn included."""
        text = self._render([{"role": "user", "content": "?"}, {"role": "assistant", "content": _REPLY}, *added])
        _, found, rest = text.rpartition(_REPLY)
        if not found:
            raise ValueError(
                f"the chat template must show earlier replies as they are, got one of "
                f"{self.tokenizer.name_or_path!r} that does not; use history='current' or another template."
            )
        return rest


def _continuation(messages: Sequence[Message], thread: Thread | None) -> Sequence[Message] | None:
    """The messages that `messages` adds to `thread`, or `None` if it is another conversation."""
    if thread is None or len(messages) <= len(thread.messages):
        return None
    seen = len(thread.messages)
    return messages[seen:] if tuple(messages[:seen]) == thread.messages else None


def _join(prefix: tuple[int, ...], added: tuple[int, ...]) -> tuple[int, ...]:
    """Appends; a model that closed its turn itself has already written the token that the template closes it with."""
    return prefix + (added[1:] if prefix and added and prefix[-1] == added[0] else added)
