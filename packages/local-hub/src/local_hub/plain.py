"""Parses untrusted JSON and YAML within limits: values that JSON can hold, nested at most a hundred deep."""

from __future__ import annotations

import json
import math
import re
from typing import Any, ClassVar

import yaml

_MOST_DEPTH = 100
_MOST_NUMBER = 10**300  # a float holds it
_MOST_NODES = 100_000  # of YAML, with all nodes of each alias
_MOST_YAML = 2**20  # characters: the parser is slow
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: it is not JSON, or exceeds the limits.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ValueError(f"a text must be JSON, got {error}; fix it.") from None
    return _within_limits(value)


def parse_yaml(text: str) -> Any:
    """Returns the value of a YAML text of plain values; a date or a time, such as 12:30, is text.

    Raises:
        ValueError: it is not YAML, or exceeds the limits.
    """
    if len(text) > _MOST_YAML:
        raise ValueError(f"YAML must have at most {_MOST_YAML} characters, got {len(text)}; shorten it.")
    try:
        value = yaml.load(text, Loader=_BoundedLoader)
    except RecursionError:
        raise _too_deep() from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, LookupError) as error:
        raise ValueError(f"a text must be YAML of plain values, got {error}; fix it.") from None
    return _within_limits(value)


def _within_limits(value: Any) -> Any:
    level = [value]
    for _ in range(_MOST_DEPTH):
        for one in level:
            if isinstance(one, int) and not -_MOST_NUMBER < one < _MOST_NUMBER:
                raise ValueError("a number must have at most 300 digits, got more; shorten it or make it text.")
            if isinstance(one, float) and not math.isfinite(one):
                raise ValueError(f"a number must be finite, got {one}; make it text.")
            if isinstance(one, str) and _SURROGATE.search(one):
                raise ValueError("text must be Unicode, got half of a surrogate pair; remove it.")
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in ([*one, *one.values()] if isinstance(one, dict) else one)
        ]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"values must be nested {_MOST_DEPTH} deep at most, got more; flatten them.")


class _BoundedLoader(yaml.SafeLoader):
    """YAML of JSON's types, whose aliases stand for a bounded number of values, and never for what they are within."""

    yaml_constructors: ClassVar[dict[str, Any]] = {
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._nodes = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor in self.anchors and event.anchor not in self._sizes:
            raise ValueError(f"the alias *{event.anchor} within what it stands for")
        before = self._nodes
        self._nodes += self._sizes.get(event.anchor, 1) if is_alias else 1
        if self._nodes > _MOST_NODES:
            raise ValueError(f"more than {_MOST_NODES} values")
        node = super().compose_node(parent, index)
        if event.anchor is not None and not is_alias:
            self._sizes[event.anchor] = self._nodes - before
        return node

    def compose_scalar_node(self, anchor: Any) -> Any:
        node = super().compose_scalar_node(anchor)
        kind = node.tag.rpartition(":")[2]
        # Times and dates are text: a number of base 60 takes quadratic time, and a date is not of JSON.
        if kind == "timestamp" or (kind in ("int", "float") and ":" in node.value):
            node.tag = self.DEFAULT_SCALAR_TAG
        return node
