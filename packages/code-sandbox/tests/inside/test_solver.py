"""The answers of the solver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from code_sandbox.inside import protocol
from code_sandbox.inside.solver import NAME, Solver, load, raised, statements


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def ask(solver: Solver, operation: str, *operands: Any, changes: Any = (), dropped: Any = ()) -> Any:
    """Returns the answer to a request with encoded operands."""
    frame = protocol.pack([operation, list(operands), list(changes), None if dropped is None else list(dropped)])
    return protocol.unpack(solver.answer(frame[4:])[4:])


def call(solver: Solver, number: int, *arguments: Any, changes: Any = ()) -> Any:
    return ask(solver, "call", ["object", number], ["tuple", *arguments], ["tuple"], changes=changes)


def test_names_are_described_without_their_values() -> None:
    solver = Solver(load("import math as m\nx = 1\ndef f():\n    pass\n__y = 2\n", "")[0])
    assert solver.described() == [["x", None], ["f", None]]


def test_plain_data_is_answered_and_the_rest_is_numbered_once() -> None:
    solver = Solver(load("x = [1]\ndef f():\n    pass\n", "")[0])
    assert ask(solver, "global", "x") == ["value", ["at", 1], [[1, None, ["list", 1]]]]
    assert ask(solver, "global", "x") == ["value", ["at", 1], []]
    assert ask(solver, "global", "f") == ["value", ["object", 0, "function", None], []]
    assert ask(solver, "global", "f") == ["value", ["object", 0, "function", None], []]


def test_a_call_returns_its_changes() -> None:
    solver = Solver(load("def f(x, y):\n    x.append(2)\n    return y\n", "")[0])
    ask(solver, "global", "f")
    assert call(solver, 0, ["at", 0], 5, changes=[[0, None, ["list", 1]]]) == [
        "value",
        5,
        [[0, None, ["list", 1, 2]]],
    ]
    assert call(solver, 0, ["at", 0], ["at", 0])[1:] == [["at", 0], [[0, None, ["list", 1, 2, 2]]]]


def test_a_call_that_raises_returns_its_changes() -> None:
    solver = Solver(load("def f(x):\n    x.append(2)\n    raise KeyError('x')\n", "")[0])
    ask(solver, "global", "f")
    answer = call(solver, 0, ["at", 0], changes=[[0, None, ["list"]]])
    assert answer == ["raise", ["KeyError"], "x", [[0, None, ["list", 2]]]]


def test_what_the_tester_has_dropped_is_unknown() -> None:
    solver = Solver(load("def f(x):\n    return x\n", "")[0])
    ask(solver, "global", "f")
    assert call(solver, 0, ["at", 0], changes=[[0, None, ["list"]]])[0] == "value"
    assert ask(solver, "len", ["at", 0], dropped=[0])[:2] == ["unread", ["ValueError"]]
    assert ask(solver, "len", ["at", 0], changes=[[0, None, ["list", 1]]], dropped=None) == ["value", 1, []]


def test_a_value_of_its_own_class_comes_with_the_members_that_the_class_adds() -> None:
    code = "class L(list):\n    def append(self, x):\n        pass\n    def more(self):\n        pass\n"
    code += "class N(int):\n    pass\n"
    solver = Solver(load(code + "x, n = L([1]), N(5)", "")[0])
    assert ask(solver, "global", "x") == ["value", ["at", 1], [[1, ["L", ["append"]], ["list", 1]]]]
    assert ask(solver, "global", "n") == ["value", ["kin", 0, ["N", []], 5], []]


def test_a_class_of_the_setup_is_the_testers_too_unless_the_code_redefines_it() -> None:
    setup = "class A:\n    pass\nclass B:\n    pass\nclass C(list):\n    pass\nclass D:\n    __slots__ = ('x',)\n"
    names, classes = load("class B:\n    pass\na = A()\na.x = [1]", setup)
    assert list(classes) == ["A"]
    solver = Solver(names, classes)
    expected = [[1, None, ["made", "A", "x", ["at", 3]]], [3, None, ["list", 1]]]
    assert ask(solver, "global", "a") == ["value", ["at", 1], expected]


def test_what_is_raised_is_named_by_its_nearest_standard_class() -> None:
    class Own(KeyError):
        pass

    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert protocol.unpack(raised(Own("x"))[4:]) == ["raise", ["KeyError"], "x", []]
    assert protocol.unpack(raised(Mute(1, 2))[4:]) == ["raise", ["Exception"], "", []]
    assert protocol.unpack(raised(SystemExit(0))[4:]) == ["raise", ["SystemExit"], "0", []]
    assert len(protocol.unpack(raised(ValueError("x" * 10_000))[4:])[2]) == 200


def test_a_question_that_is_none_is_an_exception_too() -> None:
    solver = Solver({})
    assert ask(solver, "open", "x")[:2] == ["raise", ["KeyError"]]
    assert call(solver, 9)[:2] == ["unread", ["ValueError"]]


def test_a_setups_statements_run_one_by_one() -> None:
    names, _ = load("y = x\n", "root = Later()\nx = 1\n")
    assert names["y"] == 1
    setup = "class A:\n    pass\nx = 1\nP = namedtuple('P', 'x')\nE = enum.Enum('E', 'x')\ny = A()"
    assert [statement.defines for statement in statements(setup)] == ["A", None, "P", "E", None]
