"""Removes secrets from values that are written to files for others."""

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
# Special tokens of text, which are no secrets.
_TEXT_TOKEN = re.compile(r"^(eos|bos|pad|unk|sep|cls|mask)_token$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{30,}|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----|(?<=://)[^/@\s]+(?=@)"
    r"|(?<=\bBearer )[^\s'\"]+|(?<=\bBasic )[^\s'\"]+",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(?<=[?&])([\w.-]+)=[^&\s#'\"]+")
_WORD_WITHIN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of apiKey


def redacted(value: Any) -> Any:
    """Returns `value` without secrets: found by name in mappings, and by form in text.

    Mappings lose entries named as a token, a key, a secret, a password or credentials (`hub_token`, `apiKey`). In
    text, `***` replaces tokens of the Hub, words after `Bearer` or `Basic`, text before the @ of a URL, and values
    with such a name in its query. The search enters mappings, lists and tuples; other values are returned unchanged.
    """
    if isinstance(value, Mapping):
        return {name: redacted(inner) for name, inner in value.items() if not is_secret_name(str(name))}
    if type(value) in (list, tuple):
        return type(value)(redacted(inner) for inner in value)
    if not isinstance(value, str):
        return value
    shown = _SECRET_VALUE.sub("***", value)
    return _QUERY.sub(lambda pair: f"{pair[1]}=***" if is_secret_name(pair[1]) else pair[0], shown)


def without_secrets(value: Any) -> Any:
    """Converts a value to plain values of YAML, objects to their text, without secrets (`redacted`)."""
    return _plain(redacted(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else redacted(str(value))


def redacted_command(words: Sequence[str]) -> str:
    """Returns a command as typed in a shell, with `***` for the values of secret options."""
    shown: list[str] = []
    hidden = False
    for word in words:
        is_option = word.startswith("-")
        shown.append("***" if hidden and not is_option else _redacted_word(word))
        hidden = is_option and "=" not in word and is_secret_name(word.lstrip("-"))
    return shlex.join(shown)


def _redacted_word(word: str) -> str:
    """Redacts a word of a command: `--name=value`, `name=value` for an option of a task, or a mapping in JSON."""
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
    """Returns whether a value with this name is a secret."""
    return bool(_SECRET_NAME.search(_WORD_WITHIN.sub("_", name))) and not _TEXT_TOKEN.match(name)
