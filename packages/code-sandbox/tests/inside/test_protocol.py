"""Plain data survives a round trip unchanged; anything else raises one error, and never crashes."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import fractions
import math
import os
import threading
from array import array
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from code_sandbox.inside import protocol

HASHABLE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.complex_numbers(allow_nan=False),
        st.text(st.sampled_from("aé中\U0001f600\ud800\0\n\"'"), max_size=5),
        st.binary(max_size=5),
        st.fractions(),
        st.decimals(allow_nan=False),
        st.dates(),
        st.times(),
        st.datetimes(),
        st.timedeltas(),
        st.builds(range, st.integers(), st.integers(), st.integers(1)),
        st.sampled_from([int, str, list, type(None), ..., NotImplemented]),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
PLAIN = st.recursive(
    st.one_of(HASHABLE, st.sets(HASHABLE, max_size=3), st.binary(max_size=5).map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(collections.deque),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(HASHABLE, st.integers(), max_size=3).map(collections.Counter),
        st.dictionaries(HASHABLE, inner, max_size=3).map(lambda items: collections.defaultdict(None, items)),
    ),
    max_leaves=6,
)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(list(protocol._READERS))
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.text(), inner),
        st.tuples(st.sampled_from([*protocol._READERS, "object"]), inner).map(list),
        st.tuples(st.sampled_from([*protocol._READERS, "object"]), st.lists(inner)).map(
            lambda pair: [pair[0], *pair[1]]
        ),
    ),
    max_leaves=20,
)


def through(value: Any) -> Any:
    return protocol.decode(protocol.unpack(protocol.pack(protocol.encode(value))[4:]))


@given(PLAIN)
def test_plain_data_goes_there_and_back(value: Any) -> None:
    back = through(value)
    assert back == value
    assert type(back) is type(value)


@given(JSON)
def test_whatever_json_comes_is_plain_data_or_refused(data: Any) -> None:
    try:
        value = protocol.decode(data)
    except protocol.ProtocolError:
        return
    protocol.encode(value)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_whatever_bytes_come_are_a_message_or_refused(body: bytes) -> None:
    with contextlib.suppress(protocol.ProtocolError):
        protocol.decode(protocol.unpack(body))


def test_not_a_number_and_signed_zero_survive() -> None:
    assert math.isnan(through(float("nan")))
    assert math.copysign(1, through(-0.0)) == -1
    assert through(array("d", [1.5, 2.0])) == array("d", [1.5, 2.0])
    assert through(slice(1, None, 2)) == slice(1, None, 2)
    assert through(collections.deque([1, 2], maxlen=2)).maxlen == 2


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


class SlyInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class SlyList(list[Any]):
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter("sly")


class SlyStr(str):
    def __str__(self) -> str:
        return "sly"

    __repr__ = __str__


class SlyDict(dict[Any, Any]):
    def items(self) -> Any:
        return {"sly": 1}.items()


class SlyDay(datetime.date):
    pass


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, 1),
        (Point(1, 2), (1, 2)),
        (SlyInt(7), 7),
        (SlyList([1, 2]), [1, 2]),
        (SlyStr("true"), "true"),
        (SlyDict({1: 2}), {1: 2}),
        (SlyDay(2020, 1, 2), datetime.date(2020, 1, 2)),
    ],
)
def test_a_subclass_arrives_as_its_base(value: Any, plain: Any) -> None:
    back = through(value)
    assert type(back) is type(plain)
    assert repr(back) == repr(plain)


@pytest.mark.parametrize(
    "value", [object(), len, lambda: 1, os, protocol.ProtocolError, (i for i in "x"), [object()], protocol]
)
def test_other_values_are_refused_or_passed_to_the_caller(value: Any) -> None:
    with pytest.raises(protocol.ProtocolError, match=r"^only plain data can be passed, got "):
        protocol.encode(value)
    assert "kept" in str(protocol.encode(value, lambda other: ["kept"]))


def test_data_that_contains_itself_is_refused() -> None:
    inside: list[Any] = []
    inside.append(inside)
    with pytest.raises(protocol.ProtocolError, match="nested 100 deep at most"):
        protocol.encode(inside)


def test_data_nested_too_deep_is_refused_on_both_sides() -> None:
    for depth, fine in ((90, True), (110, False), (100_000, False)):
        text = '["list",' * depth + "1" + "]" * depth
        if fine:
            assert str(protocol.decode(protocol.unpack(text.encode()))) == "[" * depth + "1" + "]" * depth
        else:
            with pytest.raises(protocol.ProtocolError):
                protocol.decode(protocol.unpack(text.encode()))


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"list": [1]},
        [["list"]],
        ["nothing"],
        ["int", 1],
        ["int", "0x"],
        ["dict", 1],
        ["set", ["list"]],
        ["dict", ["list"], 1],
        ["range", 1, 2, 0],
        ["range", "a"],
        ["fraction", 1, 0],
        ["decimal", "x"],
        ["complex", 1],
        ["deque", "x"],
        ["deque", -1],
        ["bytes", "0"],
        ["array", "?", 1],
        ["datetime", 0, 0, 0],
        ["timedelta", 10**20, 0, 0],
        ["type", "open"],
        ["type", "Exception"],
        ["type", "__loader__"],
        ["constant", "x"],
        ["object", 1, "x"],
    ],
)
def test_what_was_not_written_here_is_refused(data: Any) -> None:
    with pytest.raises(protocol.ProtocolError, match=r"^the answer is no plain data"):
        protocol.decode(data)


def test_numbers_are_exact_however_long() -> None:
    for number in (2**53, -(2**53), 2**53 - 1, 10**5000, -(7**9999)):
        assert through(number) == number
    assert through(decimal.Decimal("1E+999999")) == decimal.Decimal("1E+999999")
    assert through(fractions.Fraction(1, 3**1000)) == fractions.Fraction(1, 3**1000)


def test_a_long_message_is_refused_by_the_writer_and_by_the_reader() -> None:
    with pytest.raises(protocol.ProtocolError, match="8388608 bytes at most, got 8388610"):
        protocol.pack("x" * protocol.MESSAGE_BYTES)
    read, write = os.pipe()
    os.write(write, (2**31).to_bytes(4, "big"))
    with pytest.raises(protocol.ProtocolError, match="8388608 bytes at most, got 2147483648"):
        protocol.receive(read)
    os.close(write)
    with pytest.raises(EOFError, match="ended"):
        protocol.receive(read)
    os.close(read)


def test_frames_longer_than_a_pipe_arrive_whole() -> None:
    read, write = os.pipe()
    value = ["x" * 300_000, list(range(20_000))]
    sender = threading.Thread(target=lambda: protocol.send(write, protocol.pack(protocol.encode(value))))
    sender.start()
    assert protocol.decode(protocol.unpack(protocol.receive(read))) == value
    sender.join()
    os.close(read)
    os.close(write)
