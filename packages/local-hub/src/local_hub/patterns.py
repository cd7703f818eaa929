"""Matches patterns of .gitignore and .gitattributes, in time bounded by their length times that of paths.

A pattern as one regular expression may backtrack without end. Here `fnmatch`, whose expressions do not backtrack,
matches each part between slashes, and the parts follow one after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from local_hub.errors import bad_request

_MOST_WORK = 10**9  # about a second
_OVERHEAD = 64  # characters, of a pattern and of a path


def refuse_too_much(patterns: Iterable[str], paths: Iterable[str]) -> None:
    """Raises `HubError` 400 for more patterns and paths than match in about a second."""
    work = sum(len(one) + _OVERHEAD for one in patterns) * sum(len(one) + _OVERHEAD for one in paths)
    if work > _MOST_WORK:
        raise bad_request(
            f"patterns times paths must be at most {_MOST_WORK} characters, got {work}; send fewer files at a time."
        )


def matches(pattern: str, path: str) -> bool:
    """Returns whether a pattern of .gitignore, without its `!`, names a path or one of its folders."""
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    if parts[-1] == "**":
        parts.append("*")
    names = path.split("/")
    reached = {0}  # numbers of names that the parts so far can match
    for part in parts:
        if part == "**":
            reached = set(range(min(reached, default=len(names) + 1), len(names) + 1))
        else:
            form = _as_fnmatch(part)
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], form)}
    return any(at < len(names) or not pattern.endswith("/") for at in reached)


def is_ignored(lines: Iterable[str], path: str) -> bool:
    """Returns whether the lines of a .gitignore leave a path out; the last match counts."""
    ignored = False
    for line in lines:
        pattern, takes_back = line.removeprefix("!"), line.startswith("!")
        if pattern.strip("/") and not line.startswith("#") and ignored == takes_back and matches(pattern, path):
            ignored = not takes_back
    return ignored


def _as_fnmatch(part: str) -> str:
    """Returns a part in the syntax of `fnmatch`, which negates by `!` only and has no backslash."""
    part = part.replace("[^", "[!")
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)
