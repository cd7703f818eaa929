"""Two sides send each other their changes, and nothing else."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from code_sandbox.inside import protocol
from code_sandbox.inside.object_table import LOOKED_THROUGH, Message, ObjectTable, sharable


class Pair:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


def refuse(value: Any) -> Any:
    raise protocol.ProtocolError(f"no data: {value}")


def told(table: ObjectTable, *values: Any) -> tuple[list[Any], list[Any]]:
    """A message of these values: values and changes, read from JSON as the other side does."""
    message = Message(table, refuse, lambda value: None, lambda value, plain: None)
    written = [message.value(value) for value in values]
    changes = message.changes()
    message.sent()
    data, changes = protocol.unpack(protocol.pack([written, changes])[4:])
    return data, changes


def heard(table: ObjectTable, data: list[Any], changes: list[Any]) -> list[Any]:
    table.read(changes, protocol.decode, lambda base, _: base)
    return [protocol.decode(one, table.at) for one in data]


def sides() -> tuple[ObjectTable, ObjectTable]:
    return ObjectTable(0, {"Pair": Pair}), ObjectTable(1, {"Pair": Pair})


def test_a_thing_comes_back_as_itself() -> None:
    tester, solver = sides()
    inner: list[int] = []
    mine = [inner, {"a": inner}, Pair(inner, 1)]
    mine.append(mine)
    (theirs,) = heard(solver, *told(tester, mine))
    assert theirs[3] is theirs
    assert theirs[0] is theirs[1]["a"] is theirs[2].a
    theirs[0].append(5)
    theirs[2].b = theirs
    data, changes = told(solver, theirs)
    assert len(changes) == 2
    assert heard(tester, data, changes) == [mine]
    assert inner == [5]
    assert mine[2].b is mine


def test_unchanged_objects_do_not_travel_again() -> None:
    tester, _ = sides()
    mine = [[1], [2]]
    assert len(told(tester, mine)[1]) == 3
    assert told(tester, mine)[1] == []
    mine[1][0] = True  # type: ignore[call-overload]
    assert told(tester)[1] == [[tester._numbers[id(mine[1])], None, ["list", True]]]


def test_only_recently_used_objects_are_compared() -> None:
    tester, _ = sides()
    many = [[number] for number in range(LOOKED_THROUGH)]
    for one in many:
        told(tester, one)
    many[0].append(0)
    many[-1].append(0)
    assert [change[2] for change in told(tester)[1]] == [["list", LOOKED_THROUGH - 1, 0]]
    assert [change[2] for change in told(tester, many[0])[1]] == [["list", 0, 0]]


def test_unreferenced_objects_are_dropped_on_both_sides() -> None:
    tester, solver = sides()
    kept = []
    for number in range(100):
        heard(solver, *told(tester, [[number]]))
        kept.append([number])
        heard(solver, *told(tester, kept[-1]))
        solver.drop(tester.sweep())
    kept = kept[:5]
    for _ in range(3):
        tester._limit = 0
        solver.drop(tester.sweep())
    gc.collect()
    assert len(tester) == len(solver) == 5


def test_a_message_that_was_not_sent_changes_nothing() -> None:
    tester, solver = sides()
    mine: list[Any] = [1, object()]
    with pytest.raises(protocol.ProtocolError, match="no data"):
        told(tester, mine)
    mine.pop()
    assert heard(solver, *told(tester, mine)) == [[1]]


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {},
        [[]],
        [[1, None]],
        [["1", None, ["list"]]],
        [[True, None, ["list"]]],
        [[0, None, ["list"]]],
        [[-1, None, ["list"]]],
        [[1, None, []]],
        [[1, None, ["tuple"]]],
        [[1, None, ["made"]]],
        [[1, None, ["made", "int"]]],
        [[1, None, ["made", ["Pair"]]]],
        [[1, None, ["made", "Pair", "a"]]],
        [[1, None, ["made", "Pair", 1, 2]]],
        [[1, None, ["list", ["at", 3]]]],
        [[1, None, ["list", ["at", "1"]]]],
        [[1, None, ["list"]], [1, None, ["dict"]]],
        [[1, None, ["list"]], [1, None, []]],
    ],
)
def test_changes_that_are_none_are_refused(changes: Any) -> None:
    with pytest.raises(protocol.ProtocolError):
        heard(sides()[0], [], changes)


def test_objects_are_shared_whose_class_is_plain() -> None:
    class Own(Pair):
        pass

    class Slots:
        __slots__ = ("x",)

    class Made:
        def __new__(cls) -> Any:
            return 1

    kinds = {"Pair": Pair, "Own": Own, "Slots": Slots, "Made": Made, "Other": Pair, "int": int, "five": 5}
    assert [name for name, kind in kinds.items() if sharable(name, kind, __name__)] == ["Pair", "Own"]
