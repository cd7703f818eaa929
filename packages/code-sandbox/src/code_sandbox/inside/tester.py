"""The process that holds the tests and runs them. Functions of the solution are proxies that ask the solver.

Values return as plain data of exact built-in types, so `==` in a test is Python's own. All others are a `Remote`,
which equals no plain data.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import json
import os
import random
import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from code_sandbox.inside import object_table, protocol, proxies, solver
from code_sandbox.inside.proxies import Remote

NAME = "tests"
PASSED, FAILED, ERROR, MEMORY, GONE = "p", "f", "e", "m", "x"
LOADED = "l"
MESSAGE = 200


class SolverError(RuntimeError):
    """The solution raised an exception that is not one of Python's ordinary ones."""


class Link:
    """Sends requests to the solver and reads its answers.

    Attributes:
        classes: of the setup, whose objects both sides hold, by name.
        exceptions: of the setup, and those that stand for the solution's, by name.
        by_identity: names of classes whose objects equal only themselves: the setup's that the solution redefines.
    """

    def __init__(self, read: int, write: int, desk: Desk) -> None:
        self._read_end, self._write_end, self._desk = read, write, desk
        self.classes: dict[str, type] = {}
        self.exceptions: dict[str, type[Exception]] = {}
        self.by_identity: set[str | None] = set()
        self._passed: list[Any] = []  # functions of the tests
        self._remotes: weakref.WeakValueDictionary[int, Remote] = weakref.WeakValueDictionary()
        self._kin: dict[int, Any] = {}
        self._table = object_table.ObjectTable(0, self.classes)
        self._dropped: list[int] = []
        self._stale = self._reading = False

    def first(self) -> tuple[dict[str, type[Exception] | None], list[str]]:
        """Waits for the solution to load. Returns its names, with the tester's class of an exception that they hold,
        and the classes of the setup that the solution has not redefined."""
        kind, *rest = self._receive()
        if kind == "raise":
            self._raise(rest)
        shape = [str, [[str, object], ...], [str, ...]]
        _, names, classes = protocol.shaped([kind, *rest], shape, "list of names")
        return {name: None if lineage is None else self._exception(lineage) for name, lineage in names}, classes

    def ask(self, operation: str, *operands: Any) -> Any:
        """Returns the value of an operation in the solver.

        Raises:
            Exception: that the operation raised there.
            protocol.ProtocolError: an operand cannot be passed, or the answer is not plain data.
        """
        if self._reading:
            raise protocol.ProtocolError("the answer asks a question")
        self._send(operation, operands)
        kind, *rest = self._receive()
        while kind == "callback":
            self._call_back(rest)
            kind, *rest = self._receive()
        if kind in ("raise", "unread"):
            self._stale |= kind == "unread"
            self._raise(rest, ends=operation == "next")
        written, changes = protocol.shaped(rest if kind == "value" else None, [object, object], "message")
        (value,) = self._take(changes, written)
        return value

    def _send(self, word: str, operands: Sequence[Any]) -> None:
        self._dropped += self._table.sweep()
        if self._stale:
            self._table.clear()
        number_of = functools.partial(self._number_of, word)
        message = object_table.Message(self._table, number_of, lambda value: None, self._written)
        try:
            written = [message.value(operand) for operand in operands]
            frame = protocol.pack([word, written, message.changes(), None if self._stale else self._dropped])
        except BaseException:
            self._stale = True  # else every later message, other tests' too, would retry what cannot be sent
            raise
        try:
            protocol.send(self._write_end, frame)
        except OSError:
            self._desk.solver_gone("the solution's process has ended")
        message.sent()
        self._dropped, self._stale = [], False

    def _receive(self) -> list[Any]:
        try:
            message = protocol.unpack(protocol.receive(self._read_end))
        except (EOFError, OSError):
            self._desk.solver_gone("the solution's process has ended")
        except protocol.ProtocolError as error:  # later messages cannot be read either
            self._desk.solver_gone(str(error))
        if not protocol.shaped(message, [object, ...], "message"):
            raise protocol.ProtocolError("the answer is no message")
        return list(message)

    def _take(self, changes: Any, *written: Any) -> list[Any]:
        """Applies the changes of the solver and returns its values."""
        self._reading = True
        try:
            self._table.read(changes, self._decode, functools.partial(proxies.kin, self))
            return [self._decode(value, self._table.at) for value in written]
        except BaseException:
            self._stale = True  # the two sides no longer agree
            raise
        finally:
            self._reading = False

    def _call_back(self, called: list[Any]) -> None:
        """Calls a function of the test for the solution, and sends its result or exception."""
        if len(called) != 4 or type(called[0]) is not int or not 0 <= called[0] < len(self._passed):
            self._desk.solver_gone("the answer is no message")
        try:
            arguments, keywords = self._take(called[3], called[1], called[2])
            result = self._passed[called[0]](*arguments, **dict(keywords))
            self._send("returned", [result])
        except BaseException as error:
            self._send("raise", [*solver.lineage(type(error), NAME), solver.text_of(error)])

    def _exception(self, lineage: Any) -> type[Exception] | None:
        """Returns the class here for an exception of the solution, `None` unless it is an ordinary one of Python's."""
        if not protocol.shaped(lineage, [str, ...], "message"):
            raise protocol.ProtocolError("the answer is no message")
        *own, standard = lineage
        kind = getattr(builtins, standard, None)
        # Exceptions with a meaning for the interpreter would end a test's loop early, or the test itself.
        special = (StopIteration, StopAsyncIteration, Warning)
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, special):
            return None
        for name in reversed(own):
            kind = self.exceptions.setdefault(name, type(name, (kind,), {"__module__": NAME}))
        return kind

    def _raise(self, described: list[Any], ends: bool = False) -> NoReturn:
        lineage, text, changes = protocol.shaped(described, [[object, ...], str, object], "message")
        self._take(changes)
        if ends and lineage[-1:] == ["StopIteration"]:
            raise StopIteration
        kind = self._exception(lineage)
        if kind is None:
            raise SolverError(f"{lineage[0]}: {text}")
        try:
            error = kind(text)
        except Exception:  # a UnicodeError takes more than a text, and so may a class of the setup
            if kind.__module__ == NAME:
                error = kind.__new__(kind)
                error.args = (text,)
            else:
                error = ValueError(text) if issubclass(kind, ValueError) else SolverError(f"{lineage[0]}: {text}")
        error.by_solver = True  # type: ignore[attr-defined]
        raise error

    def _number_of(self, word: str, value: Any) -> list[Any]:
        if isinstance(value, Remote):
            proxies.require_allowed(word, value)
            return ["object", object.__getattribute__(value, "_Remote__number")]
        if not callable(value):
            raise protocol.ProtocolError(
                f"a test may pass plain data and functions to a solution, got {type(value).__name__}"
            )
        for number, known in enumerate(self._passed):
            if known is value:
                return ["passed", number]
        self._passed.append(value)
        return ["passed", len(self._passed) - 1]

    def _written(self, value: Any, plain: Callable[[], Any]) -> Any:
        number = vars(value).get("_code_sandbox_number") if proxies.is_kin(value) else None
        return None if number is None else ["object", number]

    def _decode(self, data: Any, at: Callable[[list[Any]], Any]) -> Any:
        return protocol.decode(data, lambda tagged: self._other(tagged, at))

    def _other(self, data: list[Any], at: Callable[[list[Any]], Any]) -> Any:
        tag, number, *rest = data if len(data) > 1 else (None, None)
        if tag == "at":
            return at(data)
        if type(number) is not int:
            raise protocol.ProtocolError("the answer is no plain data")
        if tag == "passed" and not rest and 0 <= number < len(self._passed):
            return self._passed[number]
        if tag == "kin" and len(rest) == 2:
            return self._kin_of(number, rest[0], self._decode(rest[1], at))
        if tag != "object" or len(rest) != 2 or type(rest[0]) is not str or type(rest[1]) not in (int, type(None)):
            raise protocol.ProtocolError("the answer is no plain data")
        remote = self._remotes.get(number)
        if remote is None:
            remote = self._remotes[number] = Remote(self, number, rest[0], rest[1], rest[0] in self.by_identity)
        return remote

    def _kin_of(self, number: int, described: Any, plain: Any) -> Any:
        """Returns immutable plain data of a class of the solution."""
        if type(plain) in protocol.CHANGING or protocol.base_of(plain) is not type(plain):
            raise protocol.ProtocolError("the answer is no plain data")
        known = self._kin.get(number)
        if known is not None and type(known).__mro__[1] is type(plain) and known == plain:
            return known
        kind = proxies.kin(self, type(plain), described)
        try:
            made = kind(plain)
        except TypeError:  # a date, which takes its parts
            return plain
        vars(made)["_code_sandbox_number"] = number
        self._kin[number] = made
        return made


@dataclass(frozen=True)
class Desk:
    """Reports outcomes: a letter to the supervisor, a line to the calling program."""

    status: int
    report: int

    def hand_in(self, index: int, outcome: str, message: str = "") -> None:
        text = "".join(character if character.isprintable() else "?" for character in message[:MESSAGE])
        if text:
            os.write(self.report, json.dumps([index, text]).encode() + b"\n")
        os.write(self.status, outcome.encode())

    def loaded(self) -> None:
        os.write(self.status, LOADED.encode())

    def solver_gone(self, message: str) -> NoReturn:
        """Ends this process, so that no test can catch it."""
        self.hand_in(CURRENT[0], GONE, message)
        os._exit(0)


CURRENT = [0]
"""The index of the running test."""


def mentioned(snippets: Sequence[str]) -> tuple[set[str], set[str]]:
    """Returns the names that occur in Python snippets, and those that are called."""
    nodes: list[ast.AST] = []
    for snippet in snippets:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            nodes += ast.walk(ast.parse(snippet))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return {node.id for node in nodes if isinstance(node, ast.Name)}, called


def bound(snippet: str) -> set[str]:
    """Returns the names that a snippet assigns outside of functions and classes."""
    names = set()
    for statement in ast.parse(snippet).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif not isinstance(statement, ast.Import | ast.ImportFrom):
            nodes = ast.walk(statement)
            names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names


def namespace(link: Link, snippets: Sequence[str], setup: str, entry_point: str | None) -> dict[str, Any]:
    """Returns the names that the tests see.

    Those of the solution are proxies. A built-in name is the solution's only if it is the entry point, that of a
    standard module only if it is the entry point or called, and names of the setup are the setup's own; else a
    solution could redefine the tools by which a test judges it. Only classes of the setup are the solver's, because
    both sides pass their objects.
    """
    defined, classes = link.first()
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    names: dict[str, Any] = vars(module)
    names["__builtins__"] = builtins
    used, called = mentioned([*snippets, setup])
    modules = (used & sys.stdlib_module_names) - called - {entry_point}
    wanted = (defined.keys() & used) - modules
    for name in sorted(modules):
        with contextlib.suppress(ImportError):  # a variable of a test may have the name of what this system lacks
            names[name] = importlib.import_module(name)
    try:
        statements = solver.statements(setup)
        later = bound(setup)  # the setup's own values are the tester's, though the solver has them too
        for name in sorted(wanted - later):
            _take(link, name, defined[name], names)
        link.by_identity = {statement.defines for statement in statements} - {entry_point, None}
        for statement in statements:
            given = statement.defines
            if given is None or given not in defined:
                exec(statement.code, names)
            elif not _run_class(link, statement, names, given in classes and given != entry_point):
                names[given] = defined[given] or link.ask("global", given)
        for name in sorted((wanted & later) - names.keys()):
            _take(link, name, defined[name], names)
    except Exception as error:
        raise RuntimeError(f"the setup failed with {type(error).__name__}: {error}") from None
    if entry_point in defined:
        names[entry_point] = link.ask("global", entry_point)
    return names


def _take(link: Link, name: str, exception: type[Exception] | None, names: dict[str, Any]) -> None:
    """Adds a name of the solution to those of the tests."""
    if not hasattr(builtins, name):
        names[name] = exception or link.ask("global", name)


def _run_class(link: Link, statement: solver.Statement, names: dict[str, Any], shared: bool) -> bool:
    """Returns whether the tester has its own class of the setup: of exceptions, or of objects that both sides hold."""
    name = str(statement.defines)
    before = names.pop(name, None)
    with contextlib.suppress(Exception):
        exec(statement.code, names)
    kind: Any = names.get(name)
    if solver.is_exception(kind) and issubclass(kind, Exception):
        link.exceptions[name] = kind
    elif shared and object_table.sharable(name, kind, NAME):
        link.classes[name] = kind
    else:
        names[name] = before
        return False
    return True


def run_test(source: str, number: int, names: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the letter of a test's outcome, and a message."""
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
    """Returns one line about an exception, whose text may be hostile."""
    try:
        return f"{type(error).__name__}: {str(error)[:MESSAGE]}".removesuffix(": ")
    except BaseException:
        return type(error).__name__


def main(task: Mapping[str, Any], first: int, seed: int, read: int, write: int, desk: Desk) -> None:
    """Runs the tests from `first` on and reports their outcomes."""
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
