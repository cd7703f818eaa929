"""The process that holds the tests and runs them. Functions of the solution are stand-ins that ask the solver.

Values come back as plain data of exact built-in types, so `==` in a test is Python's own. What is no plain data is a
`Remote`, which is equal to itself and nothing else.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import random
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hf_credit.verifiers.sandbox import solver, wire

NAME = "tests"
PASSED, FAILED, ERROR, MEMORY, GONE = "p", "f", "e", "m", "x"
LOADED = "l"
MESSAGE = 200


class SolverError(RuntimeError):
    """What the solution raised is none of Python's ordinary exceptions."""


class Link:
    """Questions to the solver, and its answers."""

    def __init__(self, read: int, write: int, desk: Desk) -> None:
        self._read, self._write, self._desk = read, write, desk
        self._passed: list[Any] = []  # functions of the tests
        self._exceptions: dict[str, type[Exception]] = {}

    def first(self) -> dict[str, tuple[str | None, type[Exception] | None]]:
        """The solution's names, once it is loaded, each with its module's where it is a module, and with an exception
        of the judge's own where it is one."""
        kind, *rest = self._receive()
        if kind == "raise":
            self._raise(rest)
        names = rest[0] if kind == "ready" and len(rest) == 1 else None
        if not isinstance(names, list) or not all(isinstance(one, list) and len(one) == 3 for one in names):
            raise wire.WireError("the answer is no list of names")
        return {
            str(name): (
                None if module is None else str(module),
                None if lineage is None else self._exception(lineage),
            )
            for name, module, lineage in names
        }

    def ask(self, operation: str, *operands: Any) -> Any:
        """The value of an operation in the solver.

        Raises:
            Exception: the one that the operation raised there.
            wire.WireError: an operand cannot be passed, or the answer is no plain data.
        """
        frame = wire.pack([operation, *[self._encode(operand) for operand in operands]])
        try:
            wire.send(self._write, frame)
        except OSError:
            self._desk.solver_gone("the solution's process has ended")
        kind, *rest = self._receive()
        while kind == "callback":
            self._call_back(rest)
            kind, *rest = self._receive()
        if kind == "raise":
            self._raise(rest, ends=operation == "next")
        if kind != "value" or len(rest) != 2:
            raise wire.WireError("the answer is no message")
        value = self._decode(rest[0])
        if operation == "call" and rest[1] is not None:
            _change(operands[1], self._decode(rest[1]))
        return value

    def _receive(self) -> list[Any]:
        try:
            message = wire.unpack(wire.receive(self._read))
        except (EOFError, OSError):
            self._desk.solver_gone("the solution's process has ended")
        except wire.WireError as error:  # what follows cannot be read either
            self._desk.solver_gone(str(error))
        if not isinstance(message, list) or not message:
            raise wire.WireError("the answer is no message")
        return message

    def _call_back(self, called: list[Any]) -> None:
        """Calls a function of the test for the solution, which learns what it returns or raises."""
        if len(called) != 3 or type(called[0]) is not int or not 0 <= called[0] < len(self._passed):
            self._desk.solver_gone("the answer is no message")
        try:
            arguments, keywords = self._decode(called[1]), self._decode(called[2])
            frame = wire.pack(["returned", self._encode(self._passed[called[0]](*arguments, **keywords))])
        except BaseException as error:
            frame = solver.raised(error)
        try:
            wire.send(self._write, frame)
        except OSError:
            self._desk.solver_gone("the solution's process has ended")

    def _exception(self, lineage: Any) -> type[Exception] | None:
        """What stands here for an exception of the solution, `None` for one that is none of Python's ordinary ones."""
        if not isinstance(lineage, list) or not lineage or not all(type(name) is str for name in lineage):
            raise wire.WireError("the answer is no message")
        *own, standard = lineage
        kind = getattr(builtins, standard, None)
        # Those that mean something to the interpreter would end a test's loop early, or the test itself.
        special = (StopIteration, StopAsyncIteration, Warning)
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, special):
            return None
        for name in reversed(own):
            kind = self._exceptions.setdefault(name, type(name, (kind,), {}))
        return kind

    def _raise(self, described: list[Any], ends: bool = False) -> NoReturn:
        if len(described) != 2 or not isinstance(described[0], list) or not isinstance(described[1], str):
            raise wire.WireError("the answer is no message")
        lineage, text = described
        if ends and lineage[-1:] == ["StopIteration"]:
            raise StopIteration
        kind = self._exception(lineage)
        if kind is None:
            raise SolverError(f"{lineage[0]}: {text}")
        try:
            error = kind(text)
        except TypeError:  # a UnicodeError wants more than a text
            error = ValueError(text) if issubclass(kind, ValueError) else SolverError(f"{lineage[0]}: {text}")
        error.by_solver = True  # type: ignore[attr-defined]
        raise error

    def _encode(self, value: Any) -> Any:
        return wire.encode(value, self._number_of)

    def _number_of(self, value: Any) -> list[Any]:
        if isinstance(value, Remote):
            return ["object", object.__getattribute__(value, "_Remote__number")]
        if not callable(value):
            raise wire.WireError(f"a test may pass plain data and functions to a solution, got {type(value).__name__}")
        for number, known in enumerate(self._passed):
            if known is value:
                return ["passed", number]
        self._passed.append(value)
        return ["passed", len(self._passed) - 1]

    def _decode(self, data: Any) -> Any:
        return wire.decode(data, self._remote)

    def _remote(self, data: list[Any]) -> Any:
        if len(data) == 2 and data[0] == "passed" and type(data[1]) is int and 0 <= data[1] < len(self._passed):
            return self._passed[data[1]]
        if len(data) != 3 or data[0] != "object" or type(data[1]) is not int or type(data[2]) is not str:
            raise wire.WireError("the answer is no plain data")
        return Remote(self, data[1], data[2])


class Remote:
    """An object of the solution that is no plain data and stays in the solver."""

    __slots__ = ("__kind", "__link", "__number")

    def __init__(self, link: Link, number: int, kind: str) -> None:
        for name, value in (("link", link), ("number", number), ("kind", kind)):
            object.__setattr__(self, f"_Remote__{name}", value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.__link.ask("call", self, list(arguments), keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__link.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__link.ask("set", self, name, value)

    def __iter__(self) -> Iterator[Any]:
        walker = self.__link.ask("iter", self)
        return walker if isinstance(walker, Remote) else iter(walker)

    def __next__(self) -> Any:
        return self.__link.ask("next", self)

    def __len__(self) -> int:
        return int(self.__link.ask("len", self))

    def __getitem__(self, key: Any) -> Any:
        return self.__link.ask("item", self, key)

    def __contains__(self, item: Any) -> bool:
        return bool(self.__link.ask("contains", self, item))

    def __bool__(self) -> bool:
        return bool(self.__link.ask("bool", self))

    def __str__(self) -> str:
        return str(self.__link.ask("str", self))

    def __repr__(self) -> str:
        return str(self.__link.ask("repr", self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and other.__number == self.__number

    def __hash__(self) -> int:
        return hash(self.__number)


def _change(arguments: list[Any], now: Any) -> None:
    """Carries changes made in place over to the test's own arguments."""
    if type(now) is not list or len(now) != len(arguments):
        return
    for own, new in zip(arguments, now, strict=True):
        if type(own) is not type(new) or (type(own) in _CHANGED and own == new):
            continue
        if isinstance(own, list | bytearray):
            own[:] = new
        elif isinstance(own, dict | set):
            own.clear()
            own.update(new)
        elif isinstance(own, deque):
            own.clear()
            own.extend(new)


_CHANGED = (list, bytearray, dict, set, deque)


@dataclass(frozen=True)
class Desk:
    """Where outcomes are handed in: one letter for the keeper, one line for the program that asked."""

    status: int
    report: int

    def hand_in(self, index: int, outcome: str, message: str = "") -> None:
        text = "".join(character if character.isprintable() else "?" for character in message[:MESSAGE])
        os.write(self.report, json.dumps([index, text]).encode() + b"\n")
        os.write(self.status, outcome.encode())

    def loaded(self) -> None:
        os.write(self.status, LOADED.encode())

    def solver_gone(self, message: str) -> NoReturn:
        """Nothing that a test catches comes after this."""
        self.hand_in(CURRENT[0], GONE, message)
        os._exit(0)


CURRENT = [0]
"""The test that is under way."""


def mentioned(snippets: Sequence[str]) -> set[str]:
    """The names that occur in some Python."""
    found = set()
    for snippet in snippets:
        try:
            tree = ast.parse(snippet)
        except (SyntaxError, ValueError, RecursionError):
            continue
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found


def namespace(link: Link, snippets: Sequence[str], setup: str, entry_point: str | None) -> dict[str, Any]:
    """The names that the tests see.

    The solution's are stand-ins. A name that Python has built in is the solution's only if it is the entry point, and
    what the setup defines is the setup's own; else a solution could redefine the tools that a test judges it with.
    Only classes that the setup defines are the solver's, because objects of them are passed to and fro.
    """
    defined = link.first()
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    names: dict[str, Any] = vars(module)
    names["__builtins__"] = builtins
    wanted = mentioned([*snippets, setup])
    for name in sorted(defined.keys() & wanted):
        origin, exception = defined[name]
        if origin is not None:
            if origin.partition(".")[0] in sys.stdlib_module_names:
                names[name] = importlib.import_module(origin)
        elif not hasattr(builtins, name):
            names[name] = exception or link.ask("global", name)
    try:
        for statement in solver.statements(setup):
            if statement.defines in defined:
                names[statement.defines] = link.ask("global", statement.defines)
            else:
                exec(statement.code, names)
    except Exception as error:
        raise RuntimeError(f"the setup failed with {type(error).__name__}: {error}") from None
    if entry_point in defined:
        names[entry_point] = link.ask("global", entry_point)
    return names


def run_test(source: str, number: int, names: Mapping[str, Any]) -> tuple[str, str]:
    """The outcome of one test, as a letter, and why."""
    try:
        exec(compile(source, f"<test {number}>", "exec", dont_inherit=True), dict(names))
    except AssertionError as error:
        return (ERROR if getattr(error, "by_solver", False) else FAILED), described(error)
    except MemoryError as error:
        return MEMORY, described(error)
    except BaseException as error:
        return ERROR, described(error)
    return PASSED, ""


def described(error: BaseException) -> str:
    """One line about an exception, which may hold a hostile text."""
    try:
        return f"{type(error).__name__}: {str(error)[:MESSAGE]}".removesuffix(": ")
    except BaseException:
        return type(error).__name__


def main(task: Mapping[str, Any], first: int, seed: int, read: int, write: int, desk: Desk) -> None:
    """Hands in the outcome of each test from `first` on."""
    tests: list[str] = task["tests"]
    random.seed(seed)
    sys.setrecursionlimit(3000)
    CURRENT[0] = first
    try:
        names = namespace(Link(read, write, desk), tests, task["setup"], task["entry_point"])
    except BaseException as error:
        desk.loaded()
        for index in range(first, len(tests)):
            desk.hand_in(index, MEMORY if isinstance(error, MemoryError) else ERROR, described(error))
        return
    desk.loaded()
    for index in range(first, len(tests)):
        CURRENT[0] = index
        outcome, message = run_test(tests[index], index, names)
        desk.hand_in(index, outcome, message)
