"""What a message says: text, or parts, if one of them is no text.

It enters by `content_of`, from an environment, a call of a program or a log, and stays as it is up to
`hf_credit.rollouts.Chat`, the one place where a model reads it. Who reads text alone asks for `text_of`, and who shows
it to people for `in_words`. Another kind of part is a class here, in `Part`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Text:
    """The text of a message that has other parts, too."""

    text: str

    def __str__(self) -> str:
        return self.text


Part = Text
"""A part of a message: a frozen dataclass of plain values, whose text is how people see it."""

Content = str | tuple[Part, ...]
"""What a message says."""


def content_of(given: Any) -> Content:
    """Returns what a message says.

    Args:
        given: text; parts, or the same in the form of chat templates, such as `{"type": "text", "text": "..."}`; or
            `None` for no text.

    Raises:
        ValueError: a part is of no known kind.
    """
    if isinstance(given, str):
        return given
    return joined(map(_read, () if given is None else given if isinstance(given, list | tuple) else [given]))


def joined(contents: Iterable[Content], between: str = "\n") -> Content:
    """Returns several contents as one: texts with `between` in between, or the parts of all."""
    contents = list(contents)
    texts = [one for one in contents if isinstance(one, str)]
    if len(texts) == len(contents):
        return between.join(texts)
    return tuple(part for one in contents for part in ([Text(one)] if isinstance(one, str) else one))


def text_of(given: Any) -> str:
    """Returns what a message says, as `content_of`, for who reads text alone.

    Raises:
        ValueError: a part is not text.
    """
    content = content_of(given)
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, Text) else _refused(part) for part in content)


def in_words(given: Any) -> str:
    """Returns what a message says for people, as `content_of`."""
    content = content_of(given)
    return content if isinstance(content, str) else "\n".join(map(str, content))


def _read(given: Any) -> Content:
    if isinstance(given, Part):
        return (given,)
    text = given.get("text") if isinstance(given, Mapping) else given
    return text if isinstance(text, str) else _refused(given)


def _refused(part: Any) -> NoReturn:
    raise ValueError(f"a message must be text or parts of text, got {str(part)[:100]!r}; remove other parts.")
