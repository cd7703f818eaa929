"""Mutable containers are read and filled by the plain class's own methods, whatever a subclass overrides."""

from __future__ import annotations

import collections
from array import array
from typing import Any

import pytest

from code_sandbox.inside import object_table, protocol

FULL: list[Any] = [
    [1, 2],
    {1, 2},
    {1: 2},
    bytearray(b"ab"),
    array("d", [1.5]),
    collections.deque([1, 2], maxlen=3),
    collections.OrderedDict(a=1),
    collections.Counter("aab"),
    collections.defaultdict(list, a=[1]),
]


def unread(value: Any) -> Any:
    raise AssertionError(value)


@pytest.mark.parametrize("value", FULL, ids=lambda value: type(value).__name__)
def test_an_empty_one_is_filled_in_place(value: Any) -> None:
    written = protocol.content(value, unread)
    made = object_table.empty(written)
    assert type(made) is type(value)
    assert len(made) == 0
    object_table.fill(made, protocol.decode(written))
    assert made == value
    assert getattr(made, "default_factory", None) is getattr(value, "default_factory", None)
    assert getattr(made, "maxlen", None) == getattr(value, "maxlen", None)
    with pytest.raises(protocol.ProtocolError):
        object_table.fill(made, (1,))


class Sly(dict[Any, Any]):
    def __iter__(self) -> Any:
        return iter("sly")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError

    keys = values = clear = __iter__  # type: ignore[assignment]


def test_a_subclass_is_asked_nothing() -> None:
    value = Sly({1: 2})
    assert object_table.items(value) == (1, 2)
    object_table.fill(value, {3: 4})
    assert dict.items(value) == {3: 4}.items()
    assert type(object_table.empty(["dict"], Sly)) is Sly


@pytest.mark.parametrize("data", [[], {}, ["tuple"], ["int"], ["deque"], ["array", "?"], [["list"]], ["nothing"], 1])
def test_what_cannot_change_is_refused(data: Any) -> None:
    with pytest.raises(protocol.ProtocolError):
        object_table.empty(data)
    with pytest.raises(protocol.ProtocolError):
        object_table.empty(["list"], dict)
