"""The process that runs the code under test. The tester trusts nothing from it but the answer to a call.

It gets the code, the setup and, call by call, the arguments. It never holds the tests, an expected value, or a
descriptor other than the two pipes to the tester.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import math
import operator
import os
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from code_sandbox.inside import object_table, protocol, proxies

NAME = "solution"
_NAMES = 2000
_MAKERS = ("namedtuple", "NamedTuple", "Enum", "IntEnum", "make_dataclass")
_MORE = ("eq", "ne", "neg", "pos", "invert", "abs", "getitem", "setitem", "delitem")
_BUILTIN = ("iter", "reversed", "next", "len", "bool", "str", "repr", "int", "float", "round", "divmod")


def load(source: str | bytes, setup: str) -> tuple[dict[str, Any], dict[str, type]]:
    """Returns the names that setup and code define, and the classes of the setup whose objects the tester holds too.

    Statements of the setup that need names of the code fail here; the tester runs them.
    """
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    names: dict[str, Any] = vars(module)
    names["__builtins__"] = builtins
    classes: dict[str, Any] = {}
    for statement in statements(setup):
        with contextlib.suppress(Exception):
            exec(statement.code, names)
            if statement.defines is not None:
                classes[statement.defines] = names[statement.defines]
    exec(compile(source, "<solution>", "exec", dont_inherit=True), names)
    shared: dict[str, Any] = {
        name: kind
        for name, kind in classes.items()
        if names.get(name) is kind and object_table.sharable(name, kind, NAME)
    }
    return names, shared


@dataclass(frozen=True)
class Statement:
    """One statement of a setup, and the name of the class that it defines, if any."""

    code: types.CodeType
    defines: str | None


def statements(setup: str) -> list[Statement]:
    """Returns the statements of a setup.

    Raises:
        SyntaxError: the setup is not Python.
    """
    return [
        Statement(compile(ast.Module([node], []), "<setup>", "exec", dont_inherit=True), _class_defined(node))
        for node in ast.parse(setup).body
    ]


def _class_defined(node: ast.stmt) -> str | None:
    """Returns the name that a statement gives to a class: `class P: ...` or `P = namedtuple("P", "x y")`."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)):
            maker = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
            return name if maker in _MAKERS else None
    return None


class Solver:
    """Answers requests of the tester about the names of the code.

    Args:
        names: defined by the code.
        classes: the classes of the setup whose objects both sides hold.
        read, write: pipes to the tester, for calls of functions that a test has passed.
    """

    def __init__(
        self, names: dict[str, Any], classes: dict[str, type] | None = None, read: int = -1, write: int = -1
    ) -> None:
        self._names = names
        self._read_end, self._write_end = read, write
        self._table = object_table.ObjectTable(1, classes)
        self._passed: dict[int, _Passed] = {}
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "global": lambda name: self._names[name],
            "call": lambda function, arguments, keywords: function(*arguments, **dict(keywords)),
            "method": lambda value, name, arguments: getattr(type(value), name)(value, *arguments),
            "get": getattr,
            "set": setattr,
            "delete": delattr,
            "instance": isinstance,
            "subclass": issubclass,
            **{name: getattr(builtins, name) for name in _BUILTIN},
            **{name: getattr(math, name) for name in ("trunc", "floor", "ceil")},
            "contains": operator.contains,
        }
        for name in (*proxies.BINARY, *proxies.IN_PLACE, *proxies.ORDER, *_MORE):
            if name != "divmod":
                self._operations[name] = getattr(operator, name, None) or getattr(operator, f"{name}_")

    def described(self) -> list[Any]:
        """Returns each public name that holds no module, with the lineage of an exception."""
        listed = []
        for name, value in list(self._names.items())[:_NAMES]:
            if type(name) is str and not name.startswith("__") and not isinstance(value, types.ModuleType):
                listed.append([name, lineage(value) if is_exception(value) else None])
        return listed

    def answer(self, body: bytes) -> bytes:
        """Returns the frame that answers one request."""
        try:
            operation, operands = self._take(body)
        except BaseException as error:
            return raised(error, "unread")
        try:
            result = self._operations[operation](*operands)
            message = self._message()
            return self._frame(message, ["value", message.value(result)], operands)
        except BaseException as error:
            return self._raised(error, operands)

    def _take(self, body: bytes) -> tuple[str, list[Any]]:
        """Applies the changes of the other side; returns the operation and its operands."""
        operation, operands, changes, dropped = protocol.unpack(body)
        if dropped is None:
            self._table.clear()
        else:
            self._table.drop(dropped)
        self._table.read(changes, self._read, lambda base, _: base)
        return operation, [self._read(operand, self._table.at) for operand in operands]

    def _message(self) -> object_table.Message:
        return object_table.Message(self._table, self._number, self._kin, self._written)

    def _frame(self, message: object_table.Message, head: list[Any], reached: list[Any]) -> bytes:
        """Returns a message with all changes on this side, above all in what was passed."""
        for value in reached:
            message.value(value)
        frame = protocol.pack([*head, message.changes()])
        message.sent()
        return frame

    def _raised(self, error: BaseException, reached: list[Any]) -> bytes:
        try:
            return self._frame(self._message(), exception_head(error, "raise"), reached)
        except BaseException:
            return raised(error)

    def _kin(self, value: Any) -> list[Any] | None:
        kind, base = type(value), protocol.base_of(value)
        return None if base is None or kind is base else [kind.__name__[:100], proxies.names_added(kind, base)]

    def _written(self, value: Any, plain: Callable[[], Any]) -> Any:
        if type(value) is _Passed or (described := self._kin(value)) is None:
            return None
        return ["kin", self._numbered(value), described, plain()]

    def _number(self, value: Any) -> list[Any]:
        if type(value) is _Passed:
            return ["passed", value.number]
        kind = type(value)
        own = kind.__module__ == NAME and kind.__hash__ not in (None, object.__hash__)
        return ["object", self._numbered(value), kind.__name__[:100], hash(value) if own else None]

    def _numbered(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)  # kept alive, so that its id stays its own
        return number

    def _read(self, data: Any, at: Callable[[list[Any]], Any]) -> Any:
        return protocol.decode(data, lambda tagged: self._known(tagged, at))

    def _known(self, tagged: list[Any], at: Callable[[list[Any]], Any]) -> Any:
        kind, number = tagged
        if kind == "at":
            return at(tagged)
        if kind == "passed":
            return self._passed.setdefault(number, _Passed(number, self))
        return self._objects[number]

    def call_back(self, number: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Returns the result of a function of the test, or raises its exception."""
        message = self._message()
        head = ["callback", number, message.value(arguments), message.value(tuple(keywords.items()))]
        protocol.send(self._write_end, self._frame(message, head, []))
        while True:
            body = protocol.receive(self._read_end)
            operation = protocol.unpack(body)[0]
            if operation == "returned":
                return self._take(body)[1][0]
            if operation == "raise":
                *own, standard, text = self._take(body)[1]
                named: list[Any] = [self._names[name] for name in own if is_exception(self._names.get(name))]
                raise (named or [getattr(builtins, standard, Exception)])[0](text)
            protocol.send(self._write_end, self.answer(body))  # a request by the function of the test


class _Passed:
    """A function that a test has passed to the solution; it runs in the tester."""

    def __init__(self, number: int, solver: Solver) -> None:
        self.number = number
        self._solver = solver

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._solver.call_back(self.number, arguments, keywords)


def is_exception(value: Any) -> bool:
    """Returns whether a value is a class of exceptions."""
    return isinstance(value, type) and issubclass(value, BaseException)


def lineage(kind: type[BaseException], module: str = NAME) -> list[str]:
    """Returns the base classes of an exception in a module, nearest first, and the nearest built-in one."""
    own = [base.__name__[:100] for base in kind.__mro__ if base.__module__ == module]
    return [*own, next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")]


def text_of(error: BaseException) -> str:
    """Returns the message of an exception, cut to 200 characters."""
    try:
        argument = error.args[0] if len(error.args) == 1 else None
        return (argument if type(argument) is str else str(error))[:200]  # str(KeyError("x")) adds quotes on each side
    except BaseException:
        return ""


def exception_head(error: BaseException, word: str) -> list[Any]:
    """Returns the head of a message about an exception: `word`, lineage, text."""
    return [word, lineage(type(error)), text_of(error)]


def raised(error: BaseException, word: str = "raise") -> bytes:
    """Returns the frame that reports an exception without changes."""
    return protocol.pack([*exception_head(error, word), []])


def main(source: str | bytes, setup: str, seed: int, read: int, write: int) -> None:
    """Loads the code, sends its names, and answers until the tester ends."""
    os.environ.clear()
    sys.argv = [""]
    random.seed(seed)
    try:
        names, classes = load(source, setup)
        solver = Solver(names, classes, read, write)
        first = protocol.pack(["ready", solver.described(), list(classes)])
    except BaseException as error:
        first = raised(error)
    protocol.send(write, first)
    while True:
        protocol.send(write, solver.answer(protocol.receive(read)))
