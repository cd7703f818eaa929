"""The only language between tester and solver: plain data, written out as JSON arrays with tags.

    value  = null | true | false | float | str | small int | [tag, ...]
    frame  = length (4 bytes, big-endian), JSON

Nothing in it can name code. A value of a subclass is written as its base class, so that the solution's own equality,
length or order never reaches a test. A value that is not plain data stays in its process, and only its number travels.
Reading is strict: anything that `encode` has not written raises `ProtocolError`, however hostile. Where both sides
must hold the same list, not two equal ones, `object_table` writes its number instead.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import functools
import json
import operator
import os
from array import array
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

MESSAGE_BYTES = 8 * 2**20
DEPTH = 100

_SMALL = 2**53
_TYPES = {
    name: kind
    for name, kind in {**vars(__import__("builtins")), "NoneType": type(None)}.items()
    if isinstance(kind, type) and not issubclass(kind, BaseException) and not name.startswith("_")
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


class ProtocolError(ValueError):
    """A value to send, or a received message, is not plain data."""


Other = Callable[[Any], Any]


def encode(value: Any, other: Other | None = None, kept: Other | None = None) -> Any:
    """Returns plain data as JSON types.

    Args:
        value: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range, deque,
            Counter, defaultdict, OrderedDict, Fraction, Decimal, array, date, time, datetime, timedelta, slice,
            Ellipsis, NotImplemented or a built-in type; also a subclass of these.
        other: writes anything else.
        kept: writes mutable data and values of a subclass, or returns `None` to write them as plain data.

    Raises:
        ProtocolError: the value is something else, too deep or contains itself.
    """
    return _encode(value, other or _refuse, kept, 0)


def content(value: Any, other: Other, kept: Other | None = None) -> Any:
    """Returns what `encode` writes for a value of a plain class or a subclass; `kept` applies to its contents only."""
    base = base_of(value)
    if base in _PLAIN:
        return _encode(_PLAIN[base](value), other, kept, 0)
    return _KINDS[base].write(value, lambda item: _encode(item, other, kept, 1))


def base_of(value: Any) -> Any:
    """Returns the plain class of a value, direct or inherited; `None` if it is not plain data."""
    kind: Any = type(value)
    return _base_of(kind)


@functools.lru_cache(maxsize=512)
def _base_of(kind: Any) -> Any:
    if kind in _KINDS or kind in _PLAIN:
        return kind
    return next((base for base in _BASES if issubclass(kind, base)), None)


def _refuse(value: Any) -> Any:
    raise ProtocolError(f"only plain data can be passed, got {type(value).__name__}")


def _encode(value: Any, other: Other, kept: Other | None, depth: int) -> Any:
    if depth > DEPTH:
        raise ProtocolError(f"data may be nested {DEPTH} deep at most")
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is str:
        if len(value) > MESSAGE_BYTES:
            raise ProtocolError(
                f"a message may have {MESSAGE_BYTES} bytes at most, got a text of {len(value)} characters"
            )
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else ["int", hex(value)]
    plain = _KINDS.get(kind)
    if plain is None and isinstance(value, type):
        return ["type", _NAMES[value]] if value in _NAMES else other(value)
    if kept is not None and (plain is None or kind in CHANGING) and (written := kept(value)) is not None:
        return written
    if plain is None:
        base = base_of(value)
        if base is None:
            return other(value)
        if base in _PLAIN:
            return _encode(_PLAIN[base](value), other, kept, depth)
        plain = _KINDS[base]
    return plain.write(value, lambda item: _encode(item, other, kept, depth + 1))


class Kind(NamedTuple):
    """How to write and read values of a plain class.

    Attributes:
        tag: precedes the parts.
        parts: splits a value into plain data, by the plain class's own methods.
        build: makes a value from a list of parts, or with `types` from as many arguments.
        types: the class of each part, as for `shaped`; `None` for any number of parts.
    """

    tag: str
    parts: Callable[[Any], Iterable[Any]]
    build: Callable[..., Any]
    types: list[type] | None = None

    def write(self, value: Any, inner: Callable[[Any], Any]) -> list[Any]:
        """Returns the tag and the parts of a value, each written by `inner`."""
        return [self.tag, *[inner(part) for part in self.parts(value)]]

    def read(self, data: list[Any], inner: Callable[[Any], Any]) -> Any:
        """Returns the value of the parts after the tag."""
        parts = [inner(part) for part in data]
        return self.build(parts) if self.types is None else self.build(*shaped(parts, self.types))


def _flat(base: Any) -> Callable[[Any], list[Any]]:
    return lambda value: [part for pair in base.items(value) for part in pair]


def _from_pairs(build: Callable[[], dict[Any, Any]]) -> Callable[[list[Any]], dict[Any, Any]]:
    def read(parts: list[Any]) -> dict[Any, Any]:
        result = build()
        for key, item in zip(parts[::2], parts[1::2], strict=True):
            result[key] = item
        return result

    return read


def _default(parts: list[Any]) -> Any:
    made: Any = parts[0]
    return _from_pairs(lambda: collections.defaultdict(made))(parts[1:])


def _deque(parts: list[Any]) -> Any:
    return collections.deque(parts[1:], None if parts[0] is None else operator.index(parts[0]))


def _seconds(span: datetime.timedelta | None) -> list[int]:
    if span is None:
        raise ProtocolError("a time zone must know its offset to be passed")
    return [span.days, span.seconds, span.microseconds]


def _moment(*names: str) -> Callable[[Any], list[Any]]:
    """A zone that is more than an offset is written as its offset at that time."""

    def parts(value: Any) -> list[Any]:
        zone = value.tzinfo
        if zone is not None and type(zone) is not datetime.timezone:
            zone = datetime.timezone(datetime.timedelta(*_seconds(value.utcoffset())), str(value.tzname()))
        return [*[getattr(value, name) for name in names], value.fold, zone]

    return parts


def _at_moment(kind: Any) -> Callable[..., Any]:
    return lambda *parts: kind(*parts[:-2], fold=parts[-2], tzinfo=parts[-1])


def _zone(days: int, seconds: int, microseconds: int, name: str) -> datetime.timezone:
    offset = datetime.timedelta(days, seconds, microseconds)
    unnamed = datetime.timezone(offset)
    return unnamed if unnamed.tzname(None) == name else datetime.timezone(offset, name)


_CONSTANTS = {"Ellipsis": ..., "NotImplemented": NotImplemented}
_CLOCK = ("hour", "minute", "second", "microsecond")
_DAY = ("year", "month", "day")
_START_STOP_STEP = operator.attrgetter("start", "stop", "step")
_NUMERATOR_DENOMINATOR = operator.attrgetter("numerator", "denominator")
_KINDS: dict[Any, Kind] = {
    list: Kind("list", list.__iter__, list),
    tuple: Kind("tuple", tuple.__iter__, tuple),
    set: Kind("set", set.__iter__, set),
    frozenset: Kind("frozenset", frozenset.__iter__, frozenset),
    collections.OrderedDict: Kind("ordered", _flat(collections.OrderedDict), _from_pairs(collections.OrderedDict)),
    collections.Counter: Kind("counter", _flat(dict), _from_pairs(collections.Counter)),
    collections.defaultdict: Kind("default", lambda value: [value.default_factory, *_flat(dict)(value)], _default),
    dict: Kind("dict", _flat(dict), _from_pairs(dict)),
    collections.deque: Kind("deque", lambda value: [value.maxlen, *value], _deque),
    bytes: Kind("bytes", lambda value: [bytes.hex(value)], bytes.fromhex, [str]),
    bytearray: Kind("bytearray", lambda value: [bytearray.hex(value)], bytearray.fromhex, [str]),
    complex: Kind("complex", lambda value: [float(value.real), float(value.imag)], complex, [float, float]),
    range: Kind("range", _START_STOP_STEP, range, [int] * 3),
    slice: Kind("slice", _START_STOP_STEP, slice, [object] * 3),
    fractions.Fraction: Kind("fraction", _NUMERATOR_DENOMINATOR, fractions.Fraction, [int, int]),
    decimal.Decimal: Kind("decimal", lambda value: [decimal.Decimal.__str__(value)], decimal.Decimal, [str]),
    array: Kind("array", lambda value: [value.typecode, *value], lambda parts: array(parts[0], parts[1:])),
    datetime.datetime: Kind("datetime", _moment(*_DAY, *_CLOCK), _at_moment(datetime.datetime), [*[int] * 8, object]),
    datetime.date: Kind("date", operator.attrgetter(*_DAY), datetime.date, [int] * 3),
    datetime.time: Kind("time", _moment(*_CLOCK), _at_moment(datetime.time), [*[int] * 5, object]),
    datetime.timezone: Kind(
        "zone", lambda value: [*_seconds(value.utcoffset(None)), value.tzname(None)], _zone, [int, int, int, str]
    ),
    datetime.timedelta: Kind("timedelta", _seconds, datetime.timedelta, [int] * 3),
    type(...): Kind("constant", lambda value: ["Ellipsis"], _CONSTANTS.__getitem__, [str]),
    type(NotImplemented): Kind("constant", lambda value: ["NotImplemented"], _CONSTANTS.__getitem__, [str]),
}
_PLAIN: dict[Any, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: lambda value: "".join(str.__iter__(value)),
}
_BASES = (*_PLAIN, *(base for base in _KINDS if base not in (type(...), type(NotImplemented))))

MAPPINGS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
CHANGING = frozenset({list, set, bytearray, array, collections.deque, *MAPPINGS})
"""The mutable plain classes."""


def decode(data: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """Returns the value that `encode` wrote, built of exact built-in and standard types.

    Args:
        data: parsed JSON.
        other: reads data with an unknown tag.

    Raises:
        ProtocolError: `encode` cannot have written this.
    """
    try:
        return _decode(data, other or _unknown, 0)
    except ProtocolError:
        raise
    except (TypeError, ValueError, OverflowError, ArithmeticError, RecursionError, LookupError) as error:
        raise ProtocolError(f"the answer is no plain data ({type(error).__name__})") from None


def _unknown(data: list[Any]) -> Any:
    raise ProtocolError("the answer is no plain data")


def shaped(data: Any, shape: Any, what: str = "plain data") -> Any:
    """Returns `data` if it has a shape.

    Args:
        data: parsed JSON.
        shape: a class, `object` for any; a tuple of classes; a list of shapes, or `[shape, ...]` for any number.
        what: the name of the expected data.

    Raises:
        ProtocolError: it has another shape.
    """
    if not _has_shape(data, shape):
        raise ProtocolError(f"the answer is no {what}")
    return data


def _has_shape(data: Any, shape: Any) -> bool:
    if type(shape) is not list:
        return shape is object or type(data) in (shape if type(shape) is tuple else (shape,))
    if type(data) is not list:
        return False
    if shape[-1] is ...:
        return all(_has_shape(one, shape[0]) for one in data)
    return len(data) == len(shape) and all(map(_has_shape, data, shape))


def _decode(data: Any, other: Callable[[Any], Any], depth: int) -> Any:
    if data is None or type(data) in (bool, str, float, int):
        return data
    if type(data) is not list or not data or type(data[0]) is not str or depth > DEPTH:
        return _unknown(data)
    kind = _READERS.get(data[0])
    if kind is None:
        return other(data)
    return kind.read(data[1:], lambda item: _decode(item, other, depth + 1))


_READERS = {kind.tag: kind for kind in _KINDS.values()} | {
    "int": Kind("int", lambda value: [hex(value)], lambda text: int(text, 16), [str]),
    "type": Kind("type", lambda value: [_NAMES[value]], _TYPES.__getitem__, [str]),
}
"""By tag. The last two belong to no class: only large numbers have a tag, and only built-in types are data."""


def pack(data: Any) -> bytes:
    """Returns the frame of an encoded message.

    Raises:
        ProtocolError: it is longer than `MESSAGE_BYTES`.
    """
    body = json.dumps(data, separators=(",", ":"), check_circular=False).encode("ascii")
    if len(body) > MESSAGE_BYTES:
        raise ProtocolError(f"a message may have {MESSAGE_BYTES} bytes at most, got {len(body)}")
    return len(body).to_bytes(4, "big") + body


def unpack(body: bytes) -> Any:
    """Returns the encoded message in a frame's body.

    Raises:
        ProtocolError: it is not JSON, or nested too deep.
    """
    try:
        return json.loads(body.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the answer is no message ({type(error).__name__})") from None


def send(descriptor: int, frame: bytes) -> None:
    """Writes a whole frame.

    Raises:
        OSError: the other side has ended.
    """
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> bytes:
    """Reads a frame's body.

    Raises:
        EOFError: the other side has ended.
        ProtocolError: the frame is too long, so that nothing after it can be read either.
    """
    length = int.from_bytes(_exactly(descriptor, 4), "big")
    if length > MESSAGE_BYTES:
        raise ProtocolError(f"a message may have {MESSAGE_BYTES} bytes at most, got {length}")
    return _exactly(descriptor, length)


def _exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError("the other side has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
