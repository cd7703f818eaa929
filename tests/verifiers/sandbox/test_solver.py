"""What the solver answers, question by question."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hf_credit.verifiers.sandbox import wire
from hf_credit.verifiers.sandbox.solver import NAME, Solver, load, raised, statements


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def ask(solver: Solver, operation: str, *operands: Any) -> Any:
    encoded = [wire.encode(operand, lambda handle: list(handle.split())) for operand in operands]
    return wire.unpack(solver.answer(wire.pack([operation, *encoded])[4:])[4:])


def handle(number: int) -> Any:
    return ["object", number]


def question(solver: Solver, *message: Any) -> Any:
    return wire.unpack(solver.answer(wire.pack(list(message))[4:])[4:])


def test_names_are_described_without_their_values() -> None:
    solver = Solver(load("import math as m\nx = 1\ndef f():\n    pass\n__y = 2\n", ""))
    assert solver.described() == [["m", "math", None], ["x", None, None], ["f", None, None]]


def test_plain_data_is_answered_and_the_rest_is_numbered_once() -> None:
    solver = Solver(load("x = [1]\ndef f():\n    pass\n", ""))
    assert ask(solver, "global", "x") == ["value", ["list", 1], None]
    assert ask(solver, "global", "f") == ["value", ["object", 0, "function"], None]
    assert ask(solver, "global", "f") == ["value", ["object", 0, "function"], None]


def test_a_call_tells_the_arguments_it_has_changed() -> None:
    solver = Solver(load("def f(x, y):\n    x.append(2)\n    return y\n", ""))
    ask(solver, "global", "f")
    changed = question(solver, "call", handle(0), ["list", ["list", 1], 5], ["dict"])
    assert changed == ["value", 5, ["list", ["list", 1, 2], 5]]


def test_what_is_raised_is_named_by_its_nearest_standard_class() -> None:
    class Own(KeyError):
        pass

    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert wire.unpack(raised(Own("x"))[4:]) == ["raise", ["KeyError"], "x"]
    assert wire.unpack(raised(Mute(1, 2))[4:]) == ["raise", ["Exception"], ""]
    assert wire.unpack(raised(SystemExit(0))[4:]) == ["raise", ["SystemExit"], "0"]
    assert len(wire.unpack(raised(ValueError("x" * 10_000))[4:])[2]) == 200


def test_a_question_that_is_none_is_an_exception_too() -> None:
    solver = Solver({})
    assert question(solver, "open", "x")[:2] == ["raise", ["KeyError"]]
    assert question(solver, "call", handle(9), ["list"], ["dict"])[:2] == ["raise", ["ValueError"]]


def test_a_setups_statements_run_one_by_one() -> None:
    names = load("y = x\n", "root = Later()\nx = 1\n")
    assert names["y"] == 1
    assert [statement.defines for statement in statements("class A:\n    pass\nx = 1")] == ["A", None]
