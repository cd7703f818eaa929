"""The only language between tester and solver: plain data, written out as JSON arrays with tags.

    value  = null | true | false | float | str | small int | [tag, ...]
    frame  = length (4 bytes, big-endian), JSON

Nothing in it can name code. A value of a subclass is written as its base class, so that an equality, a length or an
order that a solution has defined for itself never reaches a test; a value that is no plain data stays where it is, and
only its number travels. Reading is strict: whatever was not written by `encode` raises `ProtocolError`, however
hostile. Where both sides must hold the same list, not two equal ones, `object_table` writes its number instead.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import functools
import json
import os
from array import array
from collections.abc import Callable
from typing import Any

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
    """What is to be sent is no plain data, or what came is none."""


Other = Callable[[Any], Any]


def encode(value: Any, other: Other | None = None, kept: Other | None = None) -> Any:
    """Plain data as JSON's own types.

    Args:
        value: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range, deque,
            Counter, defaultdict, OrderedDict, Fraction, Decimal, array, date, time, datetime, timedelta, slice,
            Ellipsis, NotImplemented or a built-in type; also a subclass of these.
        other: what to write for anything else.
        kept: what to write for data that can change and for a value of a subclass, `None` to write it as plain data.

    Raises:
        ProtocolError: the value is something else, too deep or contains itself.
    """
    return _encode(value, other or _refuse, kept, 0)


def content(value: Any, other: Other, kept: Other | None = None) -> Any:
    """What `encode` writes for a value of a plain class or a subclass; `kept` is asked about what is in it only."""
    base = base_of(value)
    if base in _PLAIN:
        return _encode(_PLAIN[base](value), other, kept, 0)
    return _WRITERS[base](value, lambda item: _encode(item, other, kept, 1))


def base_of(value: Any) -> Any:
    """The plain class that a value is of, itself or through a subclass; `None` if it is no plain data."""
    kind: Any = type(value)
    return _base_of(kind)


@functools.lru_cache(maxsize=512)
def _base_of(kind: Any) -> Any:
    if kind in _WRITERS or kind in _PLAIN:
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
    write = _WRITERS.get(kind)
    if write is None and isinstance(value, type):
        return ["type", _NAMES[value]] if value in _NAMES else other(value)
    if kept is not None and (write is None or kind in CHANGING) and (written := kept(value)) is not None:
        return written
    if write is None:
        base = base_of(value)
        if base is None:
            return other(value)
        if base in _PLAIN:
            return _encode(_PLAIN[base](value), other, kept, depth)
        write = _WRITERS[base]
    return write(value, lambda item: _encode(item, other, kept, depth + 1))


def _pairs(value: dict[Any, Any], inner: Callable[[Any], Any], base: Any = dict) -> list[Any]:
    flat = []
    for key, item in base.items(value):
        flat += [inner(key), inner(item)]
    return flat


def _counted(tag: str, base: Any) -> Callable[[Any, Callable[[Any], Any]], list[Any]]:
    return lambda value, inner: [tag, *[inner(item) for item in base.__iter__(value)]]


def _fields(tag: str, *names: str) -> Callable[[Any, Callable[[Any], Any]], list[Any]]:
    return lambda value, inner: [tag, *[inner(getattr(value, name)) for name in names]]


def _seconds(span: datetime.timedelta | None) -> list[int]:
    if span is None:
        raise ProtocolError("a time zone must know its offset to be passed")
    return [span.days, span.seconds, span.microseconds]


def _moment(tag: str, *names: str) -> Callable[[Any, Callable[[Any], Any]], list[Any]]:
    """A zone that is more than an offset is written as the offset that it has then."""

    def write(value: Any, inner: Callable[[Any], Any]) -> list[Any]:
        zone = value.tzinfo
        if zone is not None and type(zone) is not datetime.timezone:
            zone = datetime.timezone(datetime.timedelta(*_seconds(value.utcoffset())), str(value.tzname()))
        return [tag, *[inner(getattr(value, name)) for name in names], value.fold, inner(zone)]

    return write


_CLOCK = ("hour", "minute", "second", "microsecond")
_DAY = ("year", "month", "day")
_WRITERS: dict[Any, Callable[[Any, Callable[[Any], Any]], list[Any]]] = {
    list: _counted("list", list),
    tuple: _counted("tuple", tuple),
    set: _counted("set", set),
    frozenset: _counted("frozenset", frozenset),
    collections.OrderedDict: lambda value, inner: ["ordered", *_pairs(value, inner, collections.OrderedDict)],
    collections.Counter: lambda value, inner: ["counter", *_pairs(value, inner)],
    collections.defaultdict: lambda value, inner: ["default", inner(value.default_factory), *_pairs(value, inner)],
    dict: lambda value, inner: ["dict", *_pairs(value, inner)],
    collections.deque: lambda value, inner: ["deque", value.maxlen, *[inner(item) for item in value]],
    bytes: lambda value, inner: ["bytes", bytes.hex(value)],
    bytearray: lambda value, inner: ["bytearray", bytearray.hex(value)],
    complex: lambda value, inner: ["complex", float(value.real), float(value.imag)],
    range: lambda value, inner: ["range", inner(value.start), inner(value.stop), inner(value.step)],
    slice: lambda value, inner: ["slice", inner(value.start), inner(value.stop), inner(value.step)],
    fractions.Fraction: _fields("fraction", "numerator", "denominator"),
    decimal.Decimal: lambda value, inner: ["decimal", decimal.Decimal.__str__(value)],
    array: lambda value, inner: ["array", value.typecode, *[inner(item) for item in value]],
    datetime.datetime: _moment("datetime", *_DAY, *_CLOCK),
    datetime.date: _fields("date", *_DAY),
    datetime.time: _moment("time", *_CLOCK),
    datetime.timezone: lambda value, inner: ["zone", *_seconds(value.utcoffset(None)), value.tzname(None)],
    datetime.timedelta: _fields("timedelta", "days", "seconds", "microseconds"),
    type(...): lambda value, inner: ["constant", "Ellipsis"],
    type(NotImplemented): lambda value, inner: ["constant", "NotImplemented"],
}
_PLAIN: dict[Any, Callable[[Any], Any]] = {int: int.__int__, float: float.__float__, str: str.__str__}
_PLAIN[str] = lambda value: "".join(str.__iter__(value))
_BASES = (*_PLAIN, *(base for base in _WRITERS if base not in (type(...), type(NotImplemented))))

CHANGING = frozenset(
    {
        *(list, set, bytearray, array, collections.deque),
        *(dict, collections.OrderedDict, collections.Counter, collections.defaultdict),
    }
)
"""The plain classes whose values can change."""


def decode(data: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """The value that `encode` wrote, built of exact built-in and standard types.

    Args:
        data: what JSON was read to.
        other: what to make of an unknown tag with its content.

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


def _decode(data: Any, other: Callable[[Any], Any], depth: int) -> Any:
    kind = type(data)
    if data is None or kind is bool or kind is str or kind is float or kind is int:
        return data
    if kind is not list or not data or type(data[0]) is not str or depth > DEPTH:
        return _unknown(data)
    read = _READERS.get(data[0])
    if read is None:
        return other(data)
    return read(data[1:], lambda item: _decode(item, other, depth + 1))


def _read_pairs(build: Callable[[], dict[Any, Any]]) -> Callable[[list[Any], Callable[[Any], Any]], Any]:
    def read(data: list[Any], inner: Callable[[Any], Any]) -> dict[Any, Any]:
        if len(data) % 2:
            _unknown(data)
        result = build()
        for place in range(0, len(data), 2):
            result[inner(data[place])] = inner(data[place + 1])
        return result

    return read


def _read_deque(data: list[Any], inner: Callable[[Any], Any]) -> Any:
    limit, *items = data
    if limit is not None and type(limit) is not int:
        _unknown(data)
    return collections.deque([inner(item) for item in items], limit)


def _text(data: list[Any]) -> str:
    (text,) = data
    if type(text) is not str:
        _unknown(data)
    return str(text)


def _numbers(data: list[Any], inner: Callable[[Any], Any], kinds: tuple[type, ...] = (int,)) -> list[Any]:
    numbers = [inner(item) for item in data]
    if any(type(number) not in kinds for number in numbers):
        _unknown(data)
    return numbers


def _read_int(data: list[Any], inner: Callable[[Any], Any]) -> int:
    return int(_text(data), 16)


def _read_complex(data: list[Any], inner: Callable[[Any], Any]) -> complex:
    real, imaginary = _numbers(data, inner, (float,))
    return complex(real, imaginary)


def _read_array(data: list[Any], inner: Callable[[Any], Any]) -> Any:
    code = _text(data[:1])
    return array(code, [inner(item) for item in data[1:]])


def _read_slice(data: list[Any], inner: Callable[[Any], Any]) -> slice:
    start, stop, step = (inner(item) for item in data)
    return slice(start, stop, step)


def _read_default(data: list[Any], inner: Callable[[Any], Any]) -> Any:
    factory, *pairs = data
    made: Any = inner(factory)
    return _read_pairs(lambda: collections.defaultdict(made))(pairs, inner)


def _read_moment(kind: Any, count: int) -> Callable[[list[Any], Callable[[Any], Any]], Any]:
    def read(data: list[Any], inner: Callable[[Any], Any]) -> Any:
        *numbers, zone = data
        if len(numbers) != count + 1:
            _unknown(data)
        *numbers, fold = _numbers(numbers, inner)
        return kind(*numbers, inner(zone), fold=fold)

    return read


def _read_zone(data: list[Any], inner: Callable[[Any], Any]) -> datetime.timezone:
    *numbers, name = data
    offset = datetime.timedelta(*_numbers(numbers, inner))
    found = datetime.timezone(offset)
    return found if found.tzname(None) == name else datetime.timezone(offset, _text([name]))


def _read_timedelta(data: list[Any], inner: Callable[[Any], Any]) -> datetime.timedelta:
    days, seconds, microseconds = _numbers(data, inner)
    return datetime.timedelta(days, seconds, microseconds)


_READERS: dict[str, Callable[[list[Any], Callable[[Any], Any]], Any]] = {
    "int": _read_int,
    "list": lambda data, inner: [inner(item) for item in data],
    "tuple": lambda data, inner: tuple([inner(item) for item in data]),
    "set": lambda data, inner: {inner(item) for item in data},
    "frozenset": lambda data, inner: frozenset([inner(item) for item in data]),
    "dict": _read_pairs(dict),
    "ordered": _read_pairs(collections.OrderedDict),
    "counter": _read_pairs(collections.Counter),
    "default": _read_default,
    "deque": _read_deque,
    "bytes": lambda data, inner: bytes.fromhex(_text(data)),
    "bytearray": lambda data, inner: bytearray.fromhex(_text(data)),
    "complex": _read_complex,
    "range": lambda data, inner: range(*_numbers(data, inner)),
    "slice": _read_slice,
    "fraction": lambda data, inner: fractions.Fraction(*_numbers(data, inner)),
    "decimal": lambda data, inner: decimal.Decimal(_text(data)),
    "array": _read_array,
    "datetime": _read_moment(datetime.datetime, 7),
    "date": lambda data, inner: datetime.date(*_numbers(data, inner)),
    "time": _read_moment(datetime.time, 4),
    "zone": _read_zone,
    "timedelta": _read_timedelta,
    "constant": lambda data, inner: {"Ellipsis": ..., "NotImplemented": NotImplemented}[_text(data)],
    "type": lambda data, inner: _TYPES[_text(data)],
}


def pack(data: Any) -> bytes:
    """A message, `encode`d, as a frame.

    Raises:
        ProtocolError: it is longer than `MESSAGE_BYTES`.
    """
    body = json.dumps(data, separators=(",", ":"), check_circular=False).encode("ascii")
    if len(body) > MESSAGE_BYTES:
        raise ProtocolError(f"a message may have {MESSAGE_BYTES} bytes at most, got {len(body)}")
    return len(body).to_bytes(4, "big") + body


def unpack(body: bytes) -> Any:
    """The message in a frame's body, to be `decode`d.

    Raises:
        ProtocolError: it is no JSON, or nested too deep.
    """
    try:
        return json.loads(body.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the answer is no message ({type(error).__name__})") from None


def send(descriptor: int, frame: bytes) -> None:
    """Writes all of a frame.

    Raises:
        OSError: nobody reads.
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
