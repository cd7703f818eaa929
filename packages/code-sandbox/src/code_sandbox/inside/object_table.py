"""Mutable data that both sides share: the same list on both sides, not two equal ones.

Tester and solver take turns. So they share memory if each sends its changes when it hands over: a list, dict, set or
object of a class of the setup has a number, and its content travels when it is new or has changed. `x is f(x)`, an
inner list changed in place, and a list that contains itself behave as in one interpreter.

A message has the changes of everything that its values reach and, of the rest, of the most recently used objects with
up to `LOOKED_THROUGH` items. To compare all objects would make a thousand calls cost a million comparisons.

Containers are read and filled by the methods of the plain class, whatever a subclass overrides.
"""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import operator
import sys
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from code_sandbox.inside import protocol

_STARTS = {"default": (None,), "bytearray": ("",)}


def items(value: Any) -> tuple[Any, ...]:
    """Returns the contents of a mutable container."""
    base = protocol.base_of(value)
    if base in protocol.MAPPINGS:
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
    if base in protocol.MAPPINGS:
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


LOOKED_THROUGH = 1_000
_EACH = 10  # the cost of an object besides its items
_SWEPT_FROM = 16
_PASSES = 3


class Entry:
    """An object that both sides hold.

    Args:
        value: the object.
        seen: its contents when the two sides last agreed.
        inner: the mutable ones of these.
    """

    __slots__ = ("inner", "seen", "value")

    def __init__(self, value: Any, seen: tuple[Any, ...], inner: list[Any]) -> None:
        self.value, self.seen, self.inner = value, seen, inner

    def changed(self) -> bool:
        """Returns whether its contents differ now, by identity, so that 1 is not True."""
        value, seen = self.value, self.seen
        kind = type(value)
        now: Iterable[Any]
        if kind is list:  # without a copy for the two most frequent classes
            count, now = len(value), value
        elif kind is dict:
            count, now = 2 * len(value), itertools.chain(value, value.values())
        else:
            now = _items(value)
            count = len(now)
        return count != len(seen) or not all(map(operator.is_, now, seen))


def _items(value: Any) -> tuple[Any, ...]:
    if protocol.base_of(value) is None:
        state = vars(value)
        return (*state.keys(), *state.values())
    return items(value)


def _is_of_class(kind: type, name: str) -> bool:
    """Returns whether a class defines a method or descriptor of this name, which no object may hide."""
    member = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return callable(member) or hasattr(type(member), "__get__")


class ObjectTable:
    """The shared objects, as one side knows them.

    Args:
        first: the number of the first object that this side adds, 0 or 1; the other side has the other one.
        classes: the classes of the setup whose objects are shared, by name.
    """

    def __init__(self, first: int, classes: dict[str, type] | None = None) -> None:
        self._first = self._next = first
        self.classes = classes if classes is not None else {}
        self._limit = _SWEPT_FROM
        self.clear()

    def clear(self) -> None:
        """Drops all entries; the other side must too."""
        self._entries: dict[int, Entry] = {}
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def shared(self, value: Any) -> bool:
        """Returns whether both sides hold a value once it is passed."""
        kind = type(value)
        if kind in protocol.CHANGING:
            return True
        return self.classes.get(kind.__name__) is kind or protocol.base_of(value) in protocol.CHANGING

    def sweep(self) -> list[int]:
        """Drops entries that only the table refers to; returns their numbers, for the other side to drop."""
        if len(self._entries) <= self._limit:
            return []
        dropped: list[int] = []
        for _ in range(_PASSES):
            loose = [number for number, entry in self._entries.items() if sys.getrefcount(entry.value) <= 2]
            self.drop(loose)
            dropped += loose
            if not loose:
                break
        self._limit = max(_SWEPT_FROM, 2 * len(self._entries))
        return dropped

    def drop(self, numbers: Iterable[int]) -> None:
        """Drops the entries with these numbers."""
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is not None:
                del self._numbers[id(entry.value)]

    def _put(self, number: int, entry: Entry) -> None:
        self._entries.pop(number, None)  # the most recently used comes last
        self._entries[number] = entry
        self._numbers[id(entry.value)] = number

    def read(
        self, changes: Any, decode: Callable[[Any, Callable[[list[Any]], Any]], Any], kin: Callable[[type, Any], type]
    ) -> None:
        """Applies the changes of the other side.

        Args:
            changes: a list of numbers, kin and content, as `Message` writes them.
            decode: makes a value of data, with a function that looks up numbers.
            kin: returns the proxy class for a class of the solution.

        Raises:
            protocol.ProtocolError: `Message` cannot have written them.
        """
        for number, kind, data in protocol.shaped(changes, [[int, object, list], ...], "list of changes"):
            if not data or (number not in self._entries and (number < 0 or number % 2 == self._first)):
                raise protocol.ProtocolError("the answer is no plain data")
            if number not in self._entries:
                self._put(number, Entry(self._made(data, kind, kin), (), []))
        contents = []
        for number, _, data in changes:
            inner: list[Any] = []
            plain = ["dict", *data[2:]] if data[0] == "made" else data
            contents.append((number, decode(plain, functools.partial(self._at, inner=inner)), inner))
        for number, now, inner in contents:
            value = self._entries[number].value
            if protocol.base_of(value) is not None:
                fill(value, now)
            elif type(now) is dict and all(type(name) is str for name in now):
                state = vars(value)
                state.clear()
                state.update({name: one for name, one in now.items() if not _is_of_class(type(value), name)})
            else:
                raise protocol.ProtocolError("the answer is no plain data")
            self._put(number, Entry(value, _items(value), inner))

    def _made(self, data: list[Any], kind: Any, kin: Callable[[type, Any], type]) -> Any:
        if data[0] == "made":
            (name,) = protocol.shaped(data[1:2], [str])
            if name not in self.classes:
                raise protocol.ProtocolError("the answer is no plain data")
            return object.__new__(self.classes[name])
        plain = empty(data)
        return plain if kind is None else empty(data, kin(type(plain), kind))

    def at(self, tagged: list[Any]) -> Any:
        """Returns the object with a number.

        Raises:
            protocol.ProtocolError: the table has none.
        """
        return self._at(tagged, [])

    def _at(self, tagged: list[Any], inner: list[Any]) -> Any:
        _, number = protocol.shaped(tagged, [str, int])
        entry = self._entries.get(number)
        if entry is None:
            raise protocol.ProtocolError("the answer is no plain data")
        inner.append(entry.value)
        return entry.value


class Message:
    """Values for the other side, and the changes that it needs for them.

    Args:
        table: of this side.
        other: writes a value that is not data.
        kin: describes the class of a value, `None` for a plain one.
        written: writes an immutable value of a subclass, with a function that writes its plain data; `None` to write
            only that.
    """

    def __init__(
        self,
        table: ObjectTable,
        other: protocol.Other,
        kin: Callable[[Any], Any],
        written: Callable[[Any, Callable[[], Any]], Any],
    ) -> None:
        self._table, self._other, self._kin, self._written = table, other, kin, written
        self._fresh: dict[int, int] = {}
        self._reached: dict[int, Any] = {}
        self._todo: list[int] = []
        self._inner: list[Any] = []
        self._sent: dict[int, Entry] = {}
        self._changes: list[Any] = []

    def value(self, value: Any) -> Any:
        """Returns a value in written form, and adds its changes to the message."""
        return protocol.encode(value, self._other, self._kept)

    def _kept(self, value: Any) -> Any:
        if not self._table.shared(value):
            return self._written(value, lambda: protocol.content(value, self._other, self._kept))
        self._inner.append(value)
        return ["at", self._reach(value)]

    def _reach(self, value: Any) -> int:
        number = self._table._numbers.get(id(value))
        if number is None:
            number = self._fresh.get(id(value))
        if number is None:
            number = self._fresh[id(value)] = self._table._next
            self._table._next += 2
        if number not in self._reached:
            self._reached[number] = value
            self._todo.append(number)
        return number

    def changes(self) -> list[Any]:
        """Returns the changes for the other side."""
        self._look()
        looked = 0
        for number in reversed(self._table._entries):
            entry = self._table._entries[number]
            looked += _EACH + len(entry.seen)
            if looked > LOOKED_THROUGH:
                break
            if number not in self._reached and entry.changed():
                self._reach(entry.value)
        self._look()
        return self._changes

    def _look(self) -> None:
        while self._todo:
            number = self._todo.pop()
            value, entry = self._reached[number], self._table._entries.get(number)
            if entry is not None and not entry.changed():
                for inner in entry.inner:
                    self._reach(inner)
                continue
            self._inner = []
            seen = _items(value)
            if protocol.base_of(value) is None:
                pairs = protocol.encode(
                    tuple(item for pair in vars(value).items() for item in pair), self._other, self._kept
                )
                content = ["made", type(value).__name__, *pairs[1:]]
            else:
                content = protocol.content(value, self._other, self._kept)
            self._changes.append([number, self._kin(value) if entry is None else None, content])
            self._sent[number] = Entry(value, seen, self._inner)

    def sent(self) -> None:
        """Records that the other side has received the message."""
        for number in self._reached.keys() - self._sent.keys():
            if number in self._table._entries:
                self._table._put(number, self._table._entries[number])
        for number, entry in self._sent.items():
            self._table._put(number, entry)


def sharable(name: str, kind: Any, module: str) -> bool:
    """Returns whether objects of a class of the setup are only their attributes, so that both sides can hold them.

    Args:
        name: of the class, in the setup.
        kind: the class.
        module: in which the setup ran.
    """
    return (
        type(kind) in (type, abc.ABCMeta)
        and kind.__name__ == name
        and kind.__new__ is object.__new__
        and all(base.__module__ == module and "__slots__" not in vars(base) for base in kind.__mro__[:-1])
    )
