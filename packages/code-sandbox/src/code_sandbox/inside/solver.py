"""The process that runs the code under test. Nothing it says is believed, except as an answer to a call.

It learns the code, the setup and, call by call, the arguments. It never holds the tests, an expected value, or a
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


def load(source: str | bytes, setup: str) -> tuple[dict[str, Any], dict[str, type]]:
    """The names that the setup and the code define, and the classes of the setup whose objects the tester holds too.

    Statements of the setup that need what the code defines fail here, and are the tester's to run.
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
            _class_defined(node),
        )
        for node in ast.parse(setup).body
    ]


def _class_defined(node: ast.stmt) -> str | None:
    """The name that a statement gives to a class, as `class P: ...` and `P = namedtuple("P", "x y")` do."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)):
            maker = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
            return name if maker in _MAKERS else None
    return None


class Solver:
    """Answers the tester's questions about the names that the code has defined.

    Args:
        names: what the code has defined.
        classes: those of the setup whose objects both sides hold.
        read, write: the pipes to the tester, for calls of functions that a test has passed.
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
            "iter": iter,
            "reversed": reversed,
            "next": next,
            "len": len,
            "contains": operator.contains,
            "bool": bool,
            "str": str,
            "repr": repr,
            "instance": isinstance,
            "subclass": issubclass,
            "int": int,
            "float": float,
            "round": round,
            "divmod": divmod,
            "trunc": math.trunc,
            "floor": math.floor,
            "ceil": math.ceil,
        }
        for name in (*proxies.BINARY, *proxies.IN_PLACE, *proxies.ORDER, *_MORE):
            if name != "divmod":
                self._operations[name] = getattr(operator, name, None) or getattr(operator, f"{name}_")

    def described(self) -> list[Any]:
        """Each public name, with the module's name where it is a module, and the lineage where it is an exception."""
        listed = []
        for name, value in list(self._names.items())[:_NAMES]:
            if type(name) is str and not name.startswith("__"):
                module = value.__name__ if isinstance(value, types.ModuleType) else None
                listed.append([name, module, lineage(value) if is_exception(value) else None])
        return listed

    def answer(self, body: bytes) -> bytes:
        """The frame that answers one question."""
        try:
            operation, operands = self._take(body)
        except BaseException as error:
            return raised(error, "unread")
        reached = operands
        try:
            result = self._operations[operation](*operands)
            message = self._message()
            written = self._argument(operation, operands, result) or message.value(result)
            return self._frame(message, ["value", written], reached)
        except BaseException as error:
            return self._raised(error, reached)

    def _take(self, body: bytes) -> tuple[str, list[Any]]:
        """What is asked, of what, after what has changed on the other side is taken over."""
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
        """A message with all that has changed here, in what was passed above all."""
        for value in reached:
            message.value(value)
        frame = protocol.pack([*head, message.changes()])
        message.sent()
        return frame

    def _raised(self, error: BaseException, reached: list[Any]) -> bytes:
        try:
            return self._frame(self._message(), told(error, "raise"), reached)
        except BaseException:
            return raised(error)

    def _argument(self, operation: str, operands: list[Any], result: Any) -> list[Any] | None:
        """Which argument a call has returned: the tester has it already, and tests ask `f(x) is x` of a text too."""
        if operation != "call" or type(result) in protocol.CHANGING or protocol.base_of(result) is not type(result):
            return None
        passed = [*operands[1], *(value for _, value in operands[2])]
        return next((["argument", place] for place, value in enumerate(passed) if value is result), None)

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
        """What a function of the test returns, or the exception that it raises."""
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
            protocol.send(self._write_end, self.answer(body))  # the function of the test asks something on its part


class _Passed:
    """A function that a test has passed to the solution, and that runs where the test is."""

    def __init__(self, number: int, solver: Solver) -> None:
        self.number = number
        self._solver = solver

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._solver.call_back(self.number, arguments, keywords)


def is_exception(value: Any) -> bool:
    """Whether a value is a class of exceptions."""
    return isinstance(value, type) and issubclass(value, BaseException)


def lineage(kind: type[BaseException], module: str = NAME) -> list[str]:
    """The classes of a module that an exception descends from, nearest first, and the nearest of Python's own."""
    own = [base.__name__[:100] for base in kind.__mro__ if base.__module__ == module]
    return [*own, next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")]


def text_of(error: BaseException) -> str:
    """What an exception says, in 200 characters."""
    try:
        own = error.args[0] if len(error.args) == 1 else None
        return (own if type(own) is str else str(error))[:200]  # str(KeyError("x")) would quote once more on each side
    except BaseException:
        return ""


def told(error: BaseException, word: str) -> list[Any]:
    """An exception by its lineage and text."""
    return [word, lineage(type(error)), text_of(error)]


def raised(error: BaseException, word: str = "raise") -> bytes:
    """The frame that reports an exception, and nothing that has changed."""
    return protocol.pack([*told(error, word), []])


def main(source: str | bytes, setup: str, seed: int, read: int, write: int) -> None:
    """Loads the code, says which names there are, and answers until the tester ends."""
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
