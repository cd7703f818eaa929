"""Reads untrusted JSON, names (which no invisible character or line break can make look like others), repositories and
commits within limits, and writes the canonical form of all files."""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from hf_credit.hub.safety import MOST_JSON_DEPTH
from hf_credit.safe_io import parse_json

MOST_BYTES = 256 * 2**10
"""The maximum size of an entry, a season or a season's secret."""

MOST_NAME = 80
MOST_WHOLE = 2**63 - 1

# Letters and marks that show nothing, which Python calls printable.
_BLANK = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159"
    r"\U000e0100-\U000e01ef]|^ | $|  "
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def strict_json(content: bytes, what: str = "an entry") -> Any:
    """Parses untrusted JSON.

    Args:
        what: the name of the value in errors.

    Raises:
        ValueError: `content` is too long, too deep, not JSON, or has a repeated key or a number that is not finite.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"{what} must have at most {MOST_BYTES} bytes, got {len(content)}; shorten it.")
    try:
        text = content.decode("utf-8")
        parse_json(text, most_depth=MOST_JSON_DEPTH, finite=True)
        return json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise ValueError(f"{what} must be JSON with unique names and finite numbers: {str(error)[:300]}") from None


def canonical(value: Any) -> bytes:
    """A value as the JSON that is hashed and signed: sorted keys, no blanks, ASCII.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def to_json(value: Any) -> bytes:
    """Writes a dataclass or plain values as a JSON file, of which `boundary.read` makes an equal one."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps(plain, indent=1, sort_keys=True, allow_nan=False).encode("utf-8") + b"\n"


def display_name(value: Any, what: str = "a name") -> str:
    """Returns `value` if it is a name fit to display.

    Raises:
        ValueError: `value` is empty, longer than 80 characters, not in normal form C, or has invisible characters or
            blanks that a page does not show.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > MOST_NAME:
        raise ValueError(f"{what} must be text of 1 to {MOST_NAME} characters, got {str(value)[:100]!r}; shorten it.")
    if not unicodedata.is_normalized("NFC", value) or not value.isprintable() or _BLANK.search(value):
        raise ValueError(
            f"{what} must be printable and in Unicode's normal form C, got {value!a}; remove invisible characters "
            "and blanks at the ends or side by side."
        )
    return value


def repo_id(value: Any, what: str) -> str:
    """Returns `value` if it is the id `owner/name` of a repository, and raises a `ValueError` otherwise."""
    if not _is(_REPO, value) or ".." in value:
        raise ValueError(f"{what} must be owner/name, got {str(value)[:100]!r}; correct it.")
    return str(value)


def commit_id(value: Any, what: str) -> str:
    """Returns `value` if it is a full commit hash, which unlike a branch always names the same files, and raises a
    `ValueError` otherwise."""
    if not _is(_COMMIT, value):
        raise ValueError(f"{what} must be the 40 hexadecimal digits of a commit, got {str(value)[:100]!r}; pin it.")
    return str(value)


def pinned(value: Any, what: str) -> tuple[str, str]:
    """Returns the repository and the commit of `owner/name@commit`, and raises a `ValueError` for another form."""
    name, _, commit = str(value).partition("@")
    return repo_id(name, what), commit_id(commit, f"the commit of {what}")


def hex_digest(value: Any, what: str) -> None:
    """Refuses anything but the 64 hexadecimal digits of a SHA-256, a salt or a key by a `ValueError`, which does not
    repeat it, since it may be a secret."""
    if not _is(_DIGEST, value):
        raise ValueError(f"{what} must be 64 hexadecimal digits, got another value; copy all of it.")


def mapping(value: Any, what: str, names: frozenset[str] | None = None) -> Mapping[str, Any]:
    """Returns `value` if it is a JSON object, with exactly the keys `names` unless `names` is `None`.

    Raises:
        ValueError: `value` is no object, or a key is missing or unknown.
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


def _is(form: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key must appear once in an object, got a repeated key; remove one.")
    return values
