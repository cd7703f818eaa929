"""Encodes untrusted text, which never becomes a special token, whatever it contains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

# Stands for a spelled token while a template is rendered around it; lengthened where a text holds it.
_MARK, _END = "\ue002", "\ue003"
# A token that may open a turn though its tokenizer does not call it special, such as `<｜User｜>`: no word, no blank.
_DELIMITER = re.compile(r"[^\w\s].*[^\w\s]", re.DOTALL)
# Marks of thoughts and of tool calls, which a template looks for in earlier replies.
_TAG = re.compile(r"</?\w+>")


class SpecialTokens:
    """The special tokens of a tokenizer, and how to encode their text without them.

    These are its special tokens, and added tokens that a template puts between messages, whatever their class in the
    tokenizer. Text without any of them costs a search. Text with some is encoded as a tokenizer encodes text with
    special tokens, in the pieces between them, but with the ids of their letters in place of theirs.

    Args:
        tokenizer: with these tokens.
        skeleton: a rendered conversation of plain words.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, skeleton: str) -> None:
        self._tokenizer = tokenizer
        added = list(getattr(tokenizer, "added_tokens_decoder", {}).values())
        special = {str(token) for token in tokenizer.all_special_tokens}
        special |= {token.content for token in added if token.special}
        structure = {token.content for token in added if _DELIMITER.fullmatch(token.content)}
        self._special = frozenset(name for name in special if name)
        self._names = self._special | {name for name in structure if name in skeleton}
        unknown = {tokenizer.unk_token_id}  # ordinary text has it too, where the tokenizer lacks a character
        ids: Any = tokenizer.convert_tokens_to_ids(sorted(self._names))
        self._ids = frozenset(ids) - unknown
        self._pattern = _any_of(self._names)
        # Such tokens are looked for in the text as it is normalised: in lower case, say.
        normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        normalised = {token.content for token in added if token.normalized} & self._names
        self._normalizer = normalizer if normalised else None
        also = {self._normalizer.normalize_str(name) for name in normalised} if self._normalizer else set()
        self._normalised = _any_of(self._names | also)
        self._letters: dict[str, list[int]] = {}

    def hide(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], Hidden | None]:
        """Messages without the text of special tokens, and the removed ones; `None` if there were none."""
        if not any(self._spells(value) for message in messages for value in _contents(message)):
            return [dict(message) for message in messages], None
        mark = _MARK
        while any(mark in value for message in messages for value in _contents(message)):
            mark += _MARK
        hidden = Hidden(self, mark)

        def without(value: Any, role: Any) -> Any:
            if isinstance(value, str):
                return self._without(value, role, hidden)
            if isinstance(value, Mapping):
                return {without(key, role): without(inner, role) for key, inner in value.items()}
            return [without(inner, role) for inner in value] if isinstance(value, list | tuple) else value

        return [
            {key: value if key == "role" else without(value, message.get("role")) for key, value in message.items()}
            for message in messages
        ], hidden

    def encode(self, text: str) -> list[int]:
        """The token ids of an untrusted text, none of which is special."""
        (message,), hidden = self.hide([{"content": text}])
        return self.ids(message["content"]) if hidden is None else hidden.encode(message["content"])

    def ids(self, text: str) -> list[int]:
        """The token ids of a rendered text: its special tokens are special."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        """`ids` of each text."""
        found = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
        return [list(ids) for ids in found]

    def letters(self, name: str) -> list[int]:
        """The token ids of a special token's text.

        Raises:
            ValueError: the tokenizer cannot encode it.
        """
        if name not in self._letters:
            self._letters[name] = self._spell(name)
        return self._letters[name]

    def spelled(self, text: str) -> str:
        """A special token in a text; empty if there is none."""
        found = self._pattern.search(text)
        return found.group() if found else ""

    def _spells(self, text: str) -> bool:
        if self._pattern.search(text):
            return True
        return self._normalizer is not None and bool(self._normalised.search(self._normalizer.normalize_str(text)))

    def _without(self, text: str, role: Any, hidden: Hidden) -> str:
        pattern = self._pattern
        if self._normalizer is not None:
            normal = self._normalizer.normalize_str(text)
            if self._normalised.search(normal):
                pattern, text = self._normalised, normal

        def replaced(found: re.Match[str]) -> str:
            name = found.group()
            if role == "assistant" and name not in self._special and _TAG.fullmatch(name):
                return name
            return hidden.mark_of(name)

        return pattern.sub(replaced, text)

    def _spell(self, name: str) -> list[int]:
        def plain(text: str) -> list[int]:
            return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

        ids = plain(name)
        if not self._ids.isdisjoint(ids):
            # Not special to the tokenizer, or one of its model's own pieces: letter by letter it is neither.
            ids = [token for letter in name for token in plain(letter)]
        if not self._ids.isdisjoint(ids):
            raise ValueError(
                f"a tokenizer must have tokens for the letters of its special tokens, got none for {name!r}; take "
                "another tokenizer, or remove the token from the text."
            )
        return ids


class Hidden:
    """The special tokens in the text of some messages, each at its mark.

    Args:
        tokens: of the tokenizer.
        mark: begins every mark, and occurs nowhere else in the messages.
    """

    def __init__(self, tokens: SpecialTokens, mark: str) -> None:
        self._tokens = tokens
        self._mark = mark
        self._names: list[str] = []

    def mark_of(self, name: str) -> str:
        """The mark for a token's text until `encode`."""
        if name not in self._names:
            self._names.append(name)
        return f"{self._mark}{self._names.index(name)}{_END}"

    def encode(self, text: str) -> list[int]:
        """The token ids of the rendered messages, with the letters of the hidden tokens at the marks."""
        ids: list[int] = []
        # Pieces, and between them the numbers of what was hidden there.
        for place, piece in enumerate(re.split(f"{self._mark}([0-9]+){_END}", text)):
            if place % 2:
                ids += self._tokens.letters(self._names[int(piece)])
            elif piece:
                ids += self._tokens.ids(piece)
        return ids


def _contents(message: Mapping[str, Any]) -> list[str]:
    """The content of a message, including its tool calls; its role is trusted."""
    texts: list[str] = []
    for key, value in message.items():
        if isinstance(value, str):
            texts += [value] if key != "role" else []
        else:
            texts += _texts(value)
    return texts


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (*_texts(key), *_texts(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _any_of(names: set[str] | frozenset[str]) -> re.Pattern[str]:
    """A pattern for any of the names, the longest first; it matches nothing without names."""
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)")
