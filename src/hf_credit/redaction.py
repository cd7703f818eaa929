"""What may be written to a file that others read: everything but secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_SECRET_NAME = re.compile(r"(^|[_-])(token|secret|password|passwd|key|apikey|credentials?)$", re.IGNORECASE)
# Names of the text's own tokens, which are no secrets.
_TEXT_TOKEN = re.compile(r"^(eos|bos|pad|unk|sep|cls|mask)_token$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\bhf_[A-Za-z0-9]{30,}\b|(?<=://)[^/@\s]+(?=@)")
_WORD_WITHIN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of apiKey


def redacted(value: Any) -> Any:
    """`value` without what is secret: by its name in mappings, and by its looks in text.

    Left out of mappings is what is called a token, a key, a secret, a password or credentials (`hub_token`,
    `apiKey`); in text, tokens of the Hub and what stands before the @ of a URL become `***`. Mappings, lists and
    tuples are looked through; any other value is given back as it is.
    """
    if isinstance(value, Mapping):
        return {name: redacted(inner) for name, inner in value.items() if not is_secret_name(str(name))}
    if type(value) in (list, tuple):
        return type(value)(redacted(inner) for inner in value)
    return _SECRET_VALUE.sub("***", value) if isinstance(value, str) else value


def redacted_command(words: Sequence[str]) -> str:
    """A command as one would type it, with `***` for what it gives to an option whose name is a secret's."""
    told: list[str] = []
    hidden = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = name.startswith("-")
        is_secret = is_option and is_secret_name(name.lstrip("-").replace("-", "_"))
        told.append("***" if hidden and not is_option else f"{name}=***" if is_secret and equals else redacted(word))
        hidden = is_secret and not equals
    return shlex.join(told)


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret."""
    return bool(_SECRET_NAME.search(_WORD_WITHIN.sub("_", name))) and not _TEXT_TOKEN.match(name)
