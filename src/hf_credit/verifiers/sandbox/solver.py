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
    """Answers the judge's questions about the names that the code has defined."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
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
        """Each public name, with the module's name where it is a module."""
        listed = []
        for name, value in list(self._names.items())[:_NAMES]:
            if type(name) is str and not name.startswith("__"):
                listed.append([name, value.__name__ if isinstance(value, types.ModuleType) else None])
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
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)  # kept alive, so that its id stays its own
        return ["object", number, type(value).__name__[:100]]

    def _read(self, data: Any) -> Any:
        return wire.decode(data, lambda tagged: self._objects[tagged[1]])


def raised(error: BaseException) -> bytes:
    """The frame that reports an exception, by the nearest class of the standard library."""
    standard = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    try:
        own = error.args[0] if len(error.args) == 1 else None
        text = (own if type(own) is str else str(error))[:200]  # str(KeyError("x")) would quote once more on each side
    except BaseException:
        text = ""
    return wire.pack(["raise", standard.__name__, text])


def main(source: str | bytes, setup: str, seed: int, read: int, write: int) -> None:
    """Loads the code, says which names there are, and answers until the judge ends."""
    os.environ.clear()
    sys.argv = [""]
    random.seed(seed)
    try:
        solver = Solver(load(source, setup))
        first = wire.pack(["ready", solver.described()])
    except BaseException as error:
        first = raised(error)
    wire.send(write, first)
    while True:
        wire.send(write, solver.answer(wire.receive(read)))
