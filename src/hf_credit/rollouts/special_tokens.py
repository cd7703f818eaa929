"""Encodes untrusted text without special tokens, whatever it contains."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hf_credit.boundary import encodable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Around the number of a special token whose text is hidden while a template is rendered; the first is hidden itself.
_MARK, _END = "\ue002", "\ue003"
_PLACE = re.compile(f"{_MARK}([0-9]+){_END}")
# Tokens that may open a turn although their tokenizer does not call them special, such as `<｜User｜>`.
_DELIMITER = re.compile(r"[^\w\s].*[^\w\s]", re.DOTALL)
# Tags of thoughts and tool calls, which templates look for in earlier replies.
_TAG = re.compile(r"</?\w+>")


_ROLE = re.compile(r"[^\W\d][\w-]{0,63}")


def plain_role(role: Any) -> str:
    """Returns the role of a message, which templates write as it is, so that it must be no special token.

    Raises:
        ValueError: it is not a word of letters, digits, _ and -.
    """
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise ValueError(f"a message's role must be a word, such as user, got {str(role)[:100]!r}; correct it.")
    return role


class SpecialTokens:
    """Encodes the text of a tokenizer's special tokens as ordinary text.

    Special tokens are those of the tokenizer, and added tokens that the chat template writes between messages. Text
    that contains some is encoded in the pieces between them, with the ids of their letters in place of theirs.

    Args:
        skeleton: a rendered conversation whose messages contain no special tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, skeleton: str) -> None:
        self._tokenizer = tokenizer
        added = list(getattr(tokenizer, "added_tokens_decoder", {}).values())
        special = {str(token) for token in tokenizer.all_special_tokens}
        special |= {token.content for token in added if token.special}
        structure = {token.content for token in added if _DELIMITER.fullmatch(token.content)}
        self._special = frozenset(name for name in special if name)
        self._names = self._special | {name for name in structure if name in skeleton}
        self._added = _any_of(self._special | structure)
        unknown = {tokenizer.unk_token_id}  # ordinary text has it for characters that the tokenizer lacks
        ids: Any = tokenizer.convert_tokens_to_ids(sorted(self._names))
        self._ids = frozenset(ids) - unknown
        self._pattern = _any_of(self._names | {_MARK})
        # The tokenizer finds these tokens in normalised text, such as in lower case.
        normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        normalised = {token.content for token in added if token.normalized} & self._names
        self._normalizer = normalizer if normalised else None
        more = {self._normalizer.normalize_str(name) for name in normalised} if self._normalizer else set()
        self._normalised = _any_of(self._names | more | {_MARK})
        self._letters: dict[str, list[int]] = {}

    def hide(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], Hidden | None]:
        """Returns messages with marks in place of special tokens, and the hidden tokens; `None` if there are none.
        Halves of surrogate pairs, which no tokenizer reads, become U+FFFD.

        Raises:
            ValueError: a role is no `plain_role`.
        """
        for message in messages:
            plain_role(message.get("role", "user"))
        messages = encodable(messages)
        hidden = Hidden(self)

        def without(value: Any, role: Any) -> Any:
            if isinstance(value, str):
                return self._without(value, role, hidden)
            if isinstance(value, Mapping):
                return {without(key, role): without(inner, role) for key, inner in value.items()}
            return [without(inner, role) for inner in value] if isinstance(value, list | tuple) else value

        shown = [
            {key: value if key == "role" else without(value, message.get("role")) for key, value in message.items()}
            for message in messages
        ]
        return (shown, hidden) if hidden.names else ([dict(message) for message in messages], None)

    def added(self, text: str) -> list[tuple[int, str]]:
        """Returns where special tokens, and added ones that look like these, are in a rendered text."""
        return [(found.start(), found.group()) for found in self._added.finditer(text)]

    def marks(self, names: Collection[str] | None) -> set[int]:
        """Returns the ids of special tokens with these texts; of all special tokens if `None`."""
        found: Any = self._tokenizer.convert_tokens_to_ids(
            sorted(self._special if names is None else self._special & set(names))
        )
        return set(found)

    def encode(self, text: str, kept: Collection[str] = ()) -> list[int]:
        """Returns the token ids of an untrusted text, none of which is special but those in `kept`."""
        hidden = Hidden(self)
        return hidden.encode(self._without(encodable(text), None, hidden, kept))

    def ids(self, text: str) -> list[int]:
        """Returns the token ids of a rendered text, including special tokens."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns `ids` of each text."""
        encoded = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
        return [list(ids) for ids in encoded]

    def letters(self, name: str) -> list[int]:
        """Returns the token ids of a special token's text, none of which is special.

        Raises:
            ValueError: the tokenizer has no such ids.
        """
        if name not in self._letters:
            self._letters[name] = self._spell(name)
        return self._letters[name]

    def spelled(self, text: str) -> str:
        """Returns a special token in a text; empty if there is none."""
        found = self._pattern.search(text)
        return found.group() if found else ""

    def _without(self, text: str, role: Any, hidden: Hidden, kept: Collection[str] = ()) -> str:
        pattern = self._pattern
        if self._normalizer is not None:
            normal = self._normalizer.normalize_str(text)
            if self._normalised.search(normal):
                pattern, text = self._normalised, normal

        def replaced(found: re.Match[str]) -> str:
            name = found.group()
            if name in kept or (role == "assistant" and name not in self._special and _TAG.fullmatch(name)):
                return name
            return hidden.mark_of(name)

        return pattern.sub(replaced, text)

    def _spell(self, name: str) -> list[int]:
        def plain(text: str) -> list[int]:
            return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

        ids = plain(name)
        if not self._ids.isdisjoint(ids):
            # The token is not special to the tokenizer, or a piece of its model: encode each letter separately.
            ids = [token for letter in name for token in plain(letter)]
        if not self._ids.isdisjoint(ids):
            raise ValueError(
                f"a tokenizer must have tokens for the letters of its special tokens, got none for {name!r}; use "
                "another tokenizer, or remove the token from the text."
            )
        return ids


class Hidden:
    """The special tokens in the text of messages, each replaced by a mark.

    Args:
        tokens: the special tokens of the tokenizer.

    Attributes:
        names: of the hidden tokens.
    """

    def __init__(self, tokens: SpecialTokens) -> None:
        self._tokens = tokens
        self.names: list[str] = []

    def mark_of(self, name: str) -> str:
        """Returns the mark that replaces a special token."""
        if name not in self.names:
            self.names.append(name)
        return f"{_MARK}{self.names.index(name)}{_END}"

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of the rendered messages, with the letters of hidden tokens at their marks."""
        ids: list[int] = []
        # Every second piece is the number of a hidden token.
        for index, piece in enumerate(_PLACE.split(text)):
            if index % 2:
                ids += self._tokens.letters(self.names[int(piece)])
            elif piece:
                ids += self._tokens.ids(piece)
        return ids


def _any_of(names: set[str] | frozenset[str]) -> re.Pattern[str]:
    """A pattern for any of the names, the longest first; without names it does not match."""
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)")
