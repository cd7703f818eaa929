"""Reads untrusted files and texts within limits, and reports an error quickly in one sentence.

Text is UTF-8 of bounded size, compressed or not. JSON and YAML have plain values: nested at most a hundred deep, with
integers that fit a float and text that can be encoded. An alias of YAML counts with all its nodes.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 64 * 2**20
"""The most bytes of a file of settings, results or a log, by default."""

MOST_DEPTH = 100
"""The most levels of nested values."""

_MOST_NUMBER = 10**300
_MOST_NODES = 100_000  # of a YAML text, with all nodes of each alias
_MOST_YAML = 2**20  # characters: the parser is slow


def read_text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """Returns the text of a file, decompressed if its name ends in .gz.

    Args:
        path: of the file.
        most_bytes: of the text, and so of the read.

    Raises:
        ValueError: it is longer, not UTF-8, or not compressed as its name promises.
        OSError: it cannot be read.
    """
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise ValueError(
                f"a file must have at most {most_bytes} bytes of text, got more in {path.name!r}; split it."
            )
        return content.decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"a file must be text in UTF-8, got {error} in {path.name!r}; fix it.") from None


def lines_of(path: str | Path, most_bytes: int = MOST_BYTES) -> Iterator[str]:
    """Yields the lines of a file of any size. A line above `most_bytes` is cut, so it is not JSON; bytes that are not
    UTF-8 become halves of surrogate pairs."""
    with Path(path).open("rb") as file:
        while line := file.readline(most_bytes):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(most_bytes)
            ending = b"" if line.endswith(b"\n") else rest[-1:]
            yield (line + ending).decode("utf-8", "surrogateescape")


def parse_json(text: str, broken_text: bool = False, most_depth: int = MOST_DEPTH, finite: bool = False) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: to read.
        broken_text: whether text may contain half of a surrogate pair, as in recorded replies of a policy.
        most_depth: the most levels of nested values.
        finite: whether to refuse numbers that are not finite, such as NaN and 1e999.

    Raises:
        ValueError: it is not JSON, or exceeds the limits (see the module).
    """
    try:
        number = _finite if finite else None
        value = json.loads(text, parse_float=number, parse_constant=number)
    except NotFiniteError:
        raise
    except RecursionError:
        raise _too_deep(most_depth) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"a text must be JSON, got {error}; fix it.") from None
    except ValueError:
        raise _too_long() from None
    return _plain(value, broken_text, most_depth)


def parse_yaml(text: str, strict: bool = False) -> Any:
    """Returns the value of a YAML text of plain values.

    Args:
        text: to read.
        strict: whether to refuse aliases, and repeated keys, of which YAML uses only the last.

    Raises:
        ValueError: it is not YAML, or exceeds the limits (see the module).
    """
    if len(text) > _MOST_YAML:
        raise ValueError(f"YAML must have at most {_MOST_YAML} characters, got {len(text)}; shorten it.")
    try:
        value = yaml.load(text, Loader=_StrictLoader if strict else _BoundedLoader)
    except RecursionError:
        raise _too_deep(MOST_DEPTH) from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, LookupError) as error:
        raise ValueError(f"a text must be YAML of plain values, got {error}; fix it.") from None
    return _plain(value)


def read_json(path: str | Path, most_bytes: int = MOST_BYTES) -> Any:
    """Returns the value of a JSON file.

    Raises:
        ValueError: it is not JSON, or exceeds the limits; the error names the file.
        OSError: it cannot be read.
    """
    return _parsed(parse_json, path, most_bytes)


def read_yaml(path: str | Path) -> Any:
    """Returns the value of a YAML file, with the errors of `read_json`."""
    return _parsed(parse_yaml, path)


def is_number(value: Any) -> bool:
    """Returns whether a plain value is a finite number, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _parsed(parse: Callable[[str], Any], path: str | Path, most_bytes: int = MOST_BYTES) -> Any:
    try:
        return parse(read_text(path, most_bytes))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _plain(value: Any, broken_text: bool = False, most_depth: int = MOST_DEPTH) -> Any:
    """Returns the value if it is within the limits."""
    level = [value]
    for _ in range(most_depth):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.keys()
                inner += one.values()
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str):
                if not broken_text:
                    _refuse_surrogates(one)
            elif isinstance(one, int) and not -_MOST_NUMBER < one < _MOST_NUMBER:
                raise _too_long()
        if not inner:
            return value
        level = inner
    raise _too_deep(most_depth)


class NotFiniteError(ValueError):
    """A number of a text is not finite."""


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotFiniteError(f"a number must be finite, got {text[:50]}; correct it.")
    return number


def _too_deep(most_depth: int) -> ValueError:
    return ValueError(f"values must be nested {most_depth} deep at most, got more; flatten them.")


def _too_long() -> ValueError:
    return ValueError("a number must have at most 300 digits, got more; shorten it or make it text.")


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text must be Unicode, got half of a surrogate pair at character {error.start}; remove it."
        ) from None


class _BoundedLoader(yaml.SafeLoader):
    """YAML with a bounded number of values in its aliases, and no alias within its own value."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._nodes = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                raise ValueError(f"the alias *{event.anchor} within its own value")
            self._count(self._sizes.get(event.anchor, 1))
            return super().compose_node(parent, index)
        before = self._nodes
        self._count(1)
        node = super().compose_node(parent, index)
        if event.anchor is not None:
            self._sizes[event.anchor] = self._nodes - before
        return node

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise ValueError(f"more than {_MOST_NODES} values")


class _StrictLoader(_BoundedLoader):
    """YAML without aliases and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("an alias; write its value instead")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                raise ValueError(f"the key {key.value!r} twice; leave one out")
            seen.add(name)
        return super().construct_mapping(node, deep)


def as_mapping(name: str, value: Mapping[str, Any] | str | None, example: str = '{"size": 4}') -> dict[str, Any]:
    """Reads a setting that is a mapping or, as on a command line, the JSON of one.

    Args:
        name: of the setting.
        value: its value; `None` for an empty mapping.
        example: JSON that the error shows.

    Raises:
        ValueError: the value is neither.
    """
    try:
        read = parse_json(value) if isinstance(value, str) else {} if value is None else value
    except ValueError:
        read = value
    if not isinstance(read, Mapping):
        raise ValueError(f"{name} must be a mapping, got {repr(value)[:200]}; write for example '{example}'.")
    return dict(read)
