"""What strangers send, read within limits: JSON, names, repositories and commits of entries.

JSON is UTF-8, at most 256 KiB and 32 deep, with unique names and finite numbers. Names are in Unicode's normal form C
and printable, so that none turns the text around it, hides in it or breaks a line.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 256 * 2**10
"""Of an entry, a season or a record."""

MOST_DEPTH = 32
MOST_NAME = 80

COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def strict_json(content: bytes, what: str = "an entry") -> Any:
    """The value of a JSON text from elsewhere.

    Args:
        content: the bytes of the file.
        what: it is, for the sentence.

    Raises:
        ValueError: it is longer, deeper or something else than JSON with unique names and finite numbers.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"{what} must have at most {MOST_BYTES} bytes, got {len(content)}; shorten it.")
    try:
        value = json.loads(
            content.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique, parse_int=_int
        )
    except RecursionError:
        raise ValueError(f"{what} must be nested {MOST_DEPTH} deep at most, got more; flatten it.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{what} must be JSON, got {str(error)[:200]}; mend it.") from None
    _refuse_beyond(value, what)
    return value


def canonical(value: Any) -> bytes:
    """A value as JSON in the one form that is hashed and signed: names sorted, no blanks, ASCII.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def display_name(value: Any, what: str = "a name") -> str:
    """A name that people read.

    Raises:
        ValueError: it is empty, longer than 80 characters, not in normal form C or not printable.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > MOST_NAME:
        raise ValueError(f"{what} must be text of 1 to {MOST_NAME} characters, got {str(value)[:100]!r}; shorten it.")
    if not unicodedata.is_normalized("NFC", value) or not value.isprintable():
        raise ValueError(
            f"{what} must be printable and in Unicode's normal form C, got {value!a}; remove what shows nothing."
        )
    return value


def repo_id(value: Any, what: str = "a repository") -> str:
    """An id `owner/name` of a repository.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, str) or not _REPO.fullmatch(value) or ".." in value:
        raise ValueError(f"{what} must be owner/name, got {str(value)[:100]!r}; correct it.")
    return value


def commit_id(value: Any, what: str = "a commit") -> str:
    """The 40 digits of a commit, which unlike a branch never comes to mean something else.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, str) or not COMMIT.fullmatch(value):
        raise ValueError(f"{what} must be the 40 hexadecimal digits of a commit, got {str(value)[:100]!r}; pin it.")
    return value


def number(value: Any, what: str, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number in a range.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{what} must be a number from {least:g} to {most:g}, got {str(value)[:100]!r}; correct it.")
    return value


def whole(value: Any, what: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number in a range.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(
            f"{what} must be a whole number from {least} to {most}, got {str(value)[:100]!r}; correct it."
        )
    return value


def mapping(value: Any, what: str, names: frozenset[str] | None = None) -> Mapping[str, Any]:
    """An object, with exactly these names where they are given.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, got {type(value).__name__}; correct it.")
    if names is not None and value.keys() != names:
        wrong = sorted(names ^ value.keys())[0]
        remedy = "add it" if wrong in names else "remove it"
        raise ValueError(
            f"{what} must have the fields {', '.join(sorted(names))}, got {wrong[:80]!r} wrong; {remedy}."
        )
    return value


def _int(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a whole number of more than 20 digits")
    return int(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"the number {name}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name that comes twice in an object")
    return found


def _refuse_beyond(value: Any, what: str) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [*one.keys(), *one.values()]
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, float) and not math.isfinite(one):  # 1e999
                raise ValueError(f"{what} must hold finite numbers, got {one}; correct it.")
            elif isinstance(one, str) and not one.isascii():
                _refuse_surrogates(one, what)
        if not inner:
            return
        level = inner
    raise ValueError(f"{what} must be nested {MOST_DEPTH} deep at most, got more; flatten it.")


def _refuse_surrogates(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be Unicode, got half of a surrogate pair; remove it.") from None
