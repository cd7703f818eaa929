"""The process that runs the code under test. Nothing it says is believed, except as an answer to a call.

It learns the code, the setup and, call by call, the arguments. It never holds the tests, an expected value, or a
descriptor other than the two pipes to the judge.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import os
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hf_credit.verifiers.sandbox import wire

NAME = "solution"
_NAMES = 2000


def load(source: str | bytes, setup: str) -> dict[str, Any]:
    """The names that the setup and the code define.

    Statements of the setup that need what the code defines fail here, and are the judge's to run.
    """
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    names: dict[str, Any] = vars(module)
    names["__builtins__"] = builtins
    for statement in statements(setup):
        with contextlib.suppress(Exception):
            exec(statement.code, names)
    exec(compile(source, "<solution>", "exec", dont_inherit=True), names)
    return names


@dataclass(frozen=True)
class Statement:
    """One statement of a setup, and the class that it defines, if it does."""

    code: types.CodeType
    defines: str | None


def statements(setup: str) -> list[Statement]:
    """The statements of a setup, one by one.

    Raises:
        SyntaxError: it is no Python.
    """
    return [
        Statement(
            compile(ast.Module([node], []), "<setup>", "exec", dont_inherit=True),
            node.name if isinstance(node, ast.ClassDef) else None,
        )
        for node in ast.parse(setup).body
    ]


class Solver:
    """Answers the judge's questions about the names that the code has defined.

    Args:
        names: what the code has defined.
        read, write: the pipes to the judge, for calls of functions that a test has passed.
    """

    def __init__(self, names: dict[str, Any], read: int = -1, write: int = -1) -> None:
        self._names = names
        self._read_end, self._write_end = read, write
        self._passed: dict[int, _Passed] = {}
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "global": lambda name: self._names[name],
            "get": getattr,
            "set": setattr,
            "iter": iter,
            "next": next,
            "len": len,
            "item": lambda value, key: value[key],
            "contains": lambda value, item: item in value,
            "bool": bool,
            "str": str,
            "repr": repr,
        }

    def described(self) -> list[Any]:
        """Each public name, with the module's name where it is a module, and the lineage where it is an exception."""
        listed = []
        for name, value in list(self._names.items())[:_NAMES]:
            if type(name) is str and not name.startswith("__"):
                module = value.__name__ if isinstance(value, types.ModuleType) else None
                is_exception = isinstance(value, type) and issubclass(value, BaseException)
                listed.append([name, module, lineage(value) if is_exception else None])
        return listed

    def answer(self, body: bytes) -> bytes:
        """The frame that answers one question."""
        try:
            operation, *operands = wire.unpack(body)
            if operation == "call":
                return wire.pack(self._call(operands))
            result = self._operations[operation](*[self._read(operand) for operand in operands])
            return wire.pack(["value", self._write(result), None])
        except BaseException as error:
            return raised(error)

    def _call(self, operands: list[Any]) -> list[Any]:
        function, arguments, keywords = (self._read(operand) for operand in operands)
        result = function(*arguments, **keywords)
        answer = self._write(result)
        return ["value", answer, self._changed(operands[1], arguments)]

    def _changed(self, before: list[Any], arguments: list[Any]) -> Any:
        """The arguments anew where the call has changed them in place, else None."""
        try:
            after = self._write(arguments)
        except wire.WireError:
            return None
        return after if after != before else None

    def _write(self, value: Any) -> Any:
        return wire.encode(value, self._number)

    def _number(self, value: Any) -> list[Any]:
        if type(value) is _Passed:
            return ["passed", value.number]
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)  # kept alive, so that its id stays its own
        return ["object", number, type(value).__name__[:100]]

    def _read(self, data: Any) -> Any:
        return wire.decode(data, self._known)

    def _known(self, tagged: list[Any]) -> Any:
        kind, number = tagged
        if kind == "passed":
            return self._passed.setdefault(number, _Passed(number, self))
        return self._objects[number]

    def call_back(self, number: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a function of the test returns, or the exception that it raises."""
        wire.send(
            self._write_end, wire.pack(["callback", number, self._write(list(arguments)), self._write(keywords)])
        )
        while True:
            body = wire.receive(self._read_end)
            operation, *rest = wire.unpack(body)
            if operation == "returned":
                return self._read(rest[0])
            if operation == "raise":
                raise getattr(builtins, rest[0][-1], Exception)(rest[1])
            wire.send(self._write_end, self.answer(body))  # the function of the test asks something on its part


class _Passed:
    """A function that a test has passed to the solution, and that runs where the test is."""

    def __init__(self, number: int, solver: Solver) -> None:
        self.number = number
        self._solver = solver

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._solver.call_back(self.number, arguments, keywords)


def lineage(kind: type[BaseException]) -> list[str]:
    """The classes of the solution that an exception descends from, nearest first, and the nearest of Python's own."""
    own = [base.__name__[:100] for base in kind.__mro__ if base.__module__ == NAME]
    return [*own, next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")]


def raised(error: BaseException) -> bytes:
    """The frame that reports an exception, by its lineage."""
    try:
        own = error.args[0] if len(error.args) == 1 else None
        text = (own if type(own) is str else str(error))[:200]  # str(KeyError("x")) would quote once more on each side
    except BaseException:
        text = ""
    return wire.pack(["raise", lineage(type(error)), text])


def main(source: str | bytes, setup: str, seed: int, read: int, write: int) -> None:
    """Loads the code, says which names there are, and answers until the judge ends."""
    os.environ.clear()
    sys.argv = [""]
    random.seed(seed)
    try:
        solver = Solver(load(source, setup), read, write)
        first = wire.pack(["ready", solver.described()])
    except BaseException as error:
        first = raised(error)
    wire.send(write, first)
    while True:
        wire.send(write, solver.answer(wire.receive(read)))
