"""Removes secrets from values that are written to files for others."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_SECRET_NAME = re.compile(
    r"(^|[_-])(token|secrets?|passwords?|passwd|passphrase|pwd|pat|jwt|key|apikeys?|credentials?|auth|authorization|bearer"
    r"|(api|access|private|secret)[_-]keys|(hub|hf|api|auth|access|refresh)[_-]tokens)$",
    re.IGNORECASE,
)
# Special tokens of text, which are no secrets.
_TEXT_TOKEN = re.compile(r"^(eos|bos|pad|unk|sep|cls|mask)_token$", re.IGNORECASE)
TOKENS = (
    r"hf_[A-Za-z0-9]{30,}|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"
    r"|sk-(?<=\bsk-)[\w-]{20,}|g(?<=\bg)(?:h[opsu]|ithub_pat)_\w{20,}"
)
"""A pattern of tokens of the Hub and of common servers, and of private keys.

Each begins with letters and not with a boundary, so that large files are searched many times as fast.
"""

_SECRET_VALUE = re.compile(
    rf"{TOKENS}|(?<=://)[^/?#\s]+(?=@)|(?<=\bBearer )[^\s'\"]+|(?<=\bBasic )[^\s'\"]+", re.IGNORECASE
)
_PAIR = re.compile(r"(?:(?<=[?&])|(?<!\S)(?=[-A-Z]))([\w.-]+)=[^&\s#'\"]+")  # of a query, an option or a variable
_OPTION = re.compile(r"(?<!\S)(--?[\w.-]+)(\s+)(?!'\*\*\*')(?:\"[^\"]*\"|'[^']*'|[^\s-]\S*)")
_FOLDERS = re.compile(r"(?<![\w.:/*~-])/(?:[^/\s'\"<>]++/)++")
_WORD_WITHIN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of apiKey


def redacted(value: Any, told: Callable[[Any], Any] = lambda one: one) -> Any:
    """Returns `value` without secrets: found by name in mappings, and by form in text.

    Mappings lose entries named as a token, a key, a secret, a password or credentials (`hub_token`, `apiKey`). In
    text, `***` replaces tokens of the Hub and of common servers, words after `Bearer` or `Basic`, text before the @ of
    a URL, and values with such a name in its query, of an option or of a variable; in lists also words after such an
    option. The search enters mappings, lists and tuples.

    Args:
        told: applied to every other value, after the search; by default it is returned unchanged.
    """
    if isinstance(value, Mapping):
        return {name: redacted(inner, told) for name, inner in value.items() if not is_secret_name(str(name))}
    if type(value) in (list, tuple):
        return type(value)(redacted(word, told) for word in _redacted_words(value))
    if not isinstance(value, str):
        return told(value)
    shown = _SECRET_VALUE.sub("***", value)
    shown = _OPTION.sub(lambda found: f"{found[1]}{found[2]}***" if is_secret_name(found[1]) else found[0], shown)
    return told(_PAIR.sub(lambda pair: f"{pair[1]}=***" if is_secret_name(pair[1]) else pair[0], shown))


def public(value: Any) -> Any:
    """Returns `value` without secrets, and with the last part alone of texts that are paths from the root."""
    return redacted(value, lambda one: Path(one).name if isinstance(one, str) and Path(one).is_absolute() else one)


def without_folders(text: str) -> str:
    """Returns a text with the last part alone of the paths from the root in it; URLs stay."""
    return _FOLDERS.sub("", text)


def without_secrets(value: Any) -> Any:
    """Converts a value to plain values of YAML, objects to their text, without secrets (`redacted`)."""
    plain = (bool, int, float, str, type(None))
    return redacted(value, lambda one: one if isinstance(one, plain) else redacted(str(one)))


def redacted_command(words: Sequence[str]) -> str:
    """Returns a command as typed in a shell, with `***` for the values of secret options."""
    return shlex.join(_redacted_words(words))


def _redacted_words(words: Sequence[Any]) -> Iterator[Any]:
    hidden = False
    for word in words:
        is_option = isinstance(word, str) and word.startswith("-")
        yield "***" if hidden and not is_option else _redacted_word(word) if isinstance(word, str) else word
        hidden = is_option and "=" not in word and is_secret_name(word.lstrip("-"))


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


def written_out(text: str) -> str:
    """Replaces control characters and invalid characters by their codes."""
    hidden = {one for one in set(text) - set("\n\t") if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return "".join(one.encode("unicode_escape").decode("ascii") if one in hidden else one for one in text)
