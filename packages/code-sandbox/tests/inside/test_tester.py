"""The tester with honest and hostile answers; these tests play the other side of the pipes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from code_sandbox.inside import protocol
from code_sandbox.inside.tester import NAME, Desk, Link, Remote, SolverError, namespace, run_test


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def asked(answers: list[Any], work: Callable[[Link], Any]) -> tuple[Any, list[Any]]:
    """Returns the result of the work with these answers of the solver, and its requests."""
    to_solver, to_tester = os.pipe(), os.pipe()
    questions: list[Any] = []

    def play() -> None:
        with contextlib.suppress(EOFError):
            for answer in answers:
                if not (isinstance(answer, list) and answer[:1] == ["ready"]):
                    questions.append(protocol.unpack(protocol.receive(to_solver[0])))
                protocol.send(to_tester[1], protocol.pack(answer))

    thread = threading.Thread(target=play)
    thread.start()
    try:
        return work(Link(to_tester[0], to_solver[1], Desk(-1, -1))), questions
    finally:
        os.close(to_solver[1])
        thread.join()
        for descriptor in (to_solver[0], *to_tester):
            os.close(descriptor)


def call(link: Link) -> Any:
    return Remote(link, 3, "function")(1)


def test_a_call_sends_arguments_and_returns_plain_data() -> None:
    value, questions = asked([["value", ["tuple", 1, "x"], []]], call)
    assert value == (1, "x")
    assert questions == [["call", [["object", 3], ["tuple", 1], ["tuple"]], [], []]]


def test_a_mutable_object_has_a_number_and_is_one_object_on_both_sides() -> None:
    inner: list[Any] = [1]

    def play(link: Link) -> Any:
        function = Remote(link, 3, "function")
        first = function([inner, inner])
        return first, function(first)

    changed = [[1, None, ["list", ["at", 2]]], [2, None, ["list", 1, 5]]]
    (first, second), questions = asked([["value", ["at", 1], changed], ["value", ["at", 2], []]], play)
    assert questions[0][1][1] == ["tuple", ["at", 0]]
    assert questions[0][2] == [[0, None, ["list", ["at", 2], ["at", 2]]], [2, None, ["list", 1]]]
    assert questions[1] == ["call", [["object", 3], ["tuple", ["at", 1]], ["tuple"]], [], []]
    assert first[0] is inner is second
    assert inner == [1, 5]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        7,
        None,
        ["value"],
        ["value", 1],
        ["value", 1, None],
        ["value", {"a": 1}, []],
        ["value", ["object", "1", "x", None], []],
        ["value", ["object", True, "x", None], []],
        ["value", ["object", 1, "x", "y"], []],
        ["value", ["object", 1, "x"], []],
        ["value", ["argument", 1], []],
        ["value", ["passed", 0], []],
        ["value", ["at", 1], []],
        ["value", ["at"], []],
        ["value", ["kin", 1, ["x", []], ["list"]], []],
        ["value", ["kin", 1, ["x", []], True], []],
        ["value", ["kin", 1, ["x"], 1], []],
        ["value", ["kin", 1, ["x", [1]], 1], []],
        ["value", ["kin", 1, ["\0", []], 1], []],
        ["value", 1, [1]],
        ["value", 1, [[0, None, ["list"]]]],
        ["value", 1, [[-1, None, ["list"]]]],
        ["value", 1, [[True, None, ["list"]]]],
        ["value", 1, [[1, None, ["tuple"]]]],
        ["value", 1, [[1, None, ["made", "Pair"]]]],
        ["value", 1, [[1, ["x", []], ["made", "Pair"]]]],
        ["value", 1, [[1, ["x"], ["list"]]]],
        ["value", 1, [[1, None, ["list", ["at", 3]]]]],
        ["other", 1, 2],
        ["raise"],
        ["raise", 1, 2, []],
        ["raise", ["ValueError"], "x", "y"],
        ["raise", "ValueError", "x", []],
        ["raise", [], "x", []],
        ["raise", [1], "x", []],
    ],
)
def test_an_answer_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(protocol.ProtocolError, match=r"^the answer is no "):
        asked([answer], call)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ValueError", ValueError),
        ("AssertionError", AssertionError),
        ("UnicodeDecodeError", ValueError),
        ("MemoryError", MemoryError),
        ("StopIteration", SolverError),
        ("StopAsyncIteration", SolverError),
        ("GeneratorExit", SolverError),
        ("KeyboardInterrupt", SolverError),
        ("SystemExit", SolverError),
        ("UserWarning", SolverError),
        ("ExceptionGroup", SolverError),
        ("open", SolverError),
        ("__import__", SolverError),
        ("no such", SolverError),
    ],
)
def test_only_ordinary_exceptions_are_raised_again(name: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        asked([["raise", [name], "text", []]], call)
    assert type(raised.value) is kind


def test_a_walk_ends_where_the_solvers_ends() -> None:
    answers = [["value", ["object", 4, "generator", None], []], ["value", 1, []], ["raise", ["StopIteration"], "", []]]
    # list() would first ask for a length.
    value, questions = asked(answers, lambda link: [item + 0 for item in Remote(link, 3, "generator")])
    assert value == [1]
    assert [question[0] for question in questions] == ["iter", "next", "next"]


@pytest.mark.parametrize("own", [[1], {1}, bytearray(b"1"), {1: 1}])
def test_arguments_change_only_into_their_own_type(own: Any) -> None:
    before = own.copy()
    function = lambda link: Remote(link, 3, "function")(own)  # noqa: E731
    with pytest.raises(protocol.ProtocolError):
        asked([["value", None, [[0, None, ["tuple", 5]]]]], function)
    with pytest.raises(protocol.ProtocolError):
        asked([["value", None, [[0, None, ["deque", None]]]]], function)
    assert own == before
    asked([["value", None, [[0, None, protocol.encode(type(own)())]]]], function)
    assert len(own) == 0


def test_after_an_unreadable_answer_both_sides_drop_their_objects() -> None:
    own: list[Any] = []

    def play(link: Link) -> None:
        function = Remote(link, 3, "function")
        function(own)
        with pytest.raises(protocol.ProtocolError):
            function(own)
        function(own)
        with pytest.raises(MemoryError):
            function(own)
        function(own)

    answers = [["value", None, []], ["value", ["at", 9], []], ["value", None, []]]
    answers += [["unread", ["MemoryError"], "", []], ["value", None, []]]
    _, questions = asked(answers, play)
    told = [(bool(changes), dropped) for _, _, changes, dropped in questions]
    assert told == [(True, []), (False, []), (True, None), (False, []), (True, None)]


def test_a_proxy_equals_itself_and_the_solver_compares_it_with_others() -> None:
    def compare(link: Link) -> list[bool]:
        one = Remote(link, 1, "x")
        return [one == Remote(link, 1, "y"), one == Remote(link, 2, "x"), one == 1, one == "x", one is None]

    found, questions = asked([["value", False, []]], compare)
    assert found == [True, False, False, False, False]
    assert questions == [["eq", [["object", 1], ["object", 2]], [], []]]


def test_names_of_python_and_the_setup_override_those_of_a_solution() -> None:
    ready = ["ready", [[name, None] for name in ("f", "all", "near", "math", "unused")], []]
    answers = [ready, *[["value", ["object", 0, "function", None], []]] * 2]
    tests = ["assert all([near(f(1), math.pi, os)])"]
    names, questions = asked(answers, lambda link: namespace(link, tests, "def near(*_):\n    pass", "f"))
    assert isinstance(names["f"], Remote)
    assert names["near"].__module__ == NAME
    assert "all" not in names
    assert "unused" not in names
    assert (names["math"], names["os"]) == (sys.modules["math"], os)
    assert [question[1] for question in questions] == [["f"], ["f"]]


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("assert x == 1", ("p", "")),
        ("assert x == 2", ("f", "AssertionError")),
        ("assert x == 2, 'why'", ("f", "AssertionError: why")),
        ("y", ("e", "NameError: name 'y' is not defined")),
        ("raise SystemExit(0)", ("e", "SystemExit: 0")),
        ("raise KeyboardInterrupt", ("e", "KeyboardInterrupt")),
        ("raise MemoryError", ("m", "MemoryError")),
    ],
)
def test_a_test_has_an_outcome(test: str, outcome: tuple[str, str]) -> None:
    assert run_test(test, 0, {"x": 1}) == outcome


def test_outcomes_go_to_the_supervisor_and_to_the_program() -> None:
    status, report = os.pipe(), os.pipe()
    desk = Desk(status[1], report[1])
    desk.loaded()
    desk.hand_in(3, "f", "a\nb\x1b" + "x" * 500)
    assert os.read(status[0], 100) == b"lf"
    assert os.read(report[0], 1000) == b'[3, "a?b?' + b"x" * 196 + b'"]\n'
    for descriptor in (*status, *report):
        os.close(descriptor)
