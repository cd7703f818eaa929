"""What may be written to a file that others read: everything but secrets."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_SECRET_NAME = re.compile(
    r"(^|[_-])(token|secret|password|passwd|passphrase|pwd|key|apikey|credentials?|auth|authorization|bearer)$",
    re.IGNORECASE,
)
# Names of the text's own tokens, which are no secrets.
_TEXT_TOKEN = re.compile(r"^(eos|bos|pad|unk|sep|cls|mask)_token$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{30,}\b|(?<=://)[^/@\s]+(?=@)|(?<=\bBearer )[^\s'\"]+|(?<=\bBasic )[^\s'\"]+", re.IGNORECASE
)
_QUERY = re.compile(r"(?<=[?&])([\w.-]+)=[^&\s#'\"]+")
_WORD_WITHIN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of apiKey


def redacted(value: Any) -> Any:
    """`value` without what is secret: by its name in mappings, and by its looks in text.

    Left out of mappings is what is called a token, a key, a secret, a password or credentials (`hub_token`,
    `apiKey`); in text, tokens of the Hub, what follows `Bearer` or `Basic`, what stands before the @ of a URL and what
    has such a name in its query become `***`. Mappings, lists and
    tuples are looked through; any other value is given back as it is.
    """
    if isinstance(value, Mapping):
        return {name: redacted(inner) for name, inner in value.items() if not is_secret_name(str(name))}
    if type(value) in (list, tuple):
        return type(value)(redacted(inner) for inner in value)
    return _QUERY.sub(_without_value, _SECRET_VALUE.sub("***", value)) if isinstance(value, str) else value


def _without_value(pair: re.Match[str]) -> str:
    return f"{pair[1]}=***" if is_secret_name(pair[1]) else pair[0]


def redacted_command(words: Sequence[str]) -> str:
    """A command as one would type it, with `***` for what it gives to an option whose name is a secret's."""
    told: list[str] = []
    hidden = False
    for word in words:
        is_option = word.startswith("-")
        told.append("***" if hidden and not is_option else _redacted_word(word))
        hidden = is_option and "=" not in word and is_secret_name(word.lstrip("-"))
    return shlex.join(told)


def _redacted_word(word: str) -> str:
    """A word of a command: `--name=value`, `name=value` as an option of a task has it, or a mapping in JSON."""
    name, equals, value = word.partition("=")
    if equals and is_secret_name(name.lstrip("-").rpartition(".")[2]):
        return f"{name}=***"
    if (equals and name.isidentifier()) or (name.startswith("-") and equals):
        return f"{name}={_redacted_word(value)}"
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(read := json.loads(word), dict | list) and redacted(read) != read:
            return json.dumps(redacted(read))
    return str(redacted(word))


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret."""
    return bool(_SECRET_NAME.search(_WORD_WITHIN.sub("_", name))) and not _TEXT_TOKEN.match(name)
