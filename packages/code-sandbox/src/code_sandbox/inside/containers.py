"""Reads, fills and makes mutable containers by the methods of the plain class, whatever a subclass overrides."""

from __future__ import annotations

import collections
from array import array
from typing import Any

from code_sandbox.inside import protocol

_STARTS = {"default": (None,), "bytearray": ("",)}
MAPPINGS = (collections.OrderedDict, collections.Counter, collections.defaultdict, dict)


def items(value: Any) -> tuple[Any, ...]:
    """Returns the contents of a mutable container."""
    base = protocol.base_of(value)
    if base in MAPPINGS:
        return (*base.keys(value), *base.values(value))
    return tuple(base.__iter__(value))


def fill(value: Any, data: Any) -> None:
    """Replaces the contents of `value` by those of `data`, in place.

    Raises:
        protocol.ProtocolError: the two differ in class.
    """
    if protocol.base_of(value) is not type(data) or type(data) not in protocol.CHANGING:
        raise protocol.ProtocolError("the answer is no plain data")
    base: Any = type(data)
    if base in MAPPINGS:
        base.clear(value)
        for key, item in data.items():
            base.__setitem__(value, key, item)
        if base is collections.defaultdict:
            value.default_factory = data.default_factory
    elif base in (list, bytearray, array):
        base.__setitem__(value, slice(None), data)
    else:
        base.clear(value)
        (base.update if base is set else base.extend)(value, data)


def empty(data: Any, kind: type | None = None) -> Any:
    """Returns an empty container for data that `content` wrote, of its plain class or of the subclass `kind`.

    Raises:
        protocol.ProtocolError: `content` cannot have written this.
    """
    tag = data[0] if type(data) is list and data and type(data[0]) is str else ""
    start = data[:2] if tag in ("deque", "array") else [tag, *_STARTS.get(tag, ())]
    base = type(plain := protocol.decode(start))
    if base not in protocol.CHANGING or not issubclass(kind or base, base):
        raise protocol.ProtocolError("the answer is no plain data")
    if kind is None:
        return plain
    if base is collections.deque:
        return kind([], plain.maxlen)
    return kind(plain.typecode) if base is array else kind()
