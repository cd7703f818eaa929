"""What the judge makes of answers, honest and hostile; the other side of the pipes is played here."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hf_credit.verifiers.sandbox import wire
from hf_credit.verifiers.sandbox.judge import NAME, Desk, Link, Remote, SolverError, namespace, run_test


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def asked(answers: list[Any], work: Callable[[Link], Any]) -> tuple[Any, list[Any]]:
    """What comes of the work where the solver gives these answers, and what it was asked."""
    to_solver, to_judge = os.pipe(), os.pipe()
    questions: list[Any] = []

    def play() -> None:
        with contextlib.suppress(EOFError):
            for answer in answers:
                if not (isinstance(answer, list) and answer[:1] == ["ready"]):
                    questions.append(wire.unpack(wire.receive(to_solver[0])))
                wire.send(to_judge[1], wire.pack(answer))

    thread = threading.Thread(target=play)
    thread.start()
    try:
        return work(Link(to_judge[0], to_solver[1], Desk(-1, -1))), questions
    finally:
        os.close(to_solver[1])
        thread.join()
        for descriptor in (to_solver[0], *to_judge):
            os.close(descriptor)


def call(link: Link) -> Any:
    return Remote(link, 3, "function")(1)


def test_a_call_sends_arguments_and_returns_plain_data() -> None:
    value, questions = asked([["value", ["list", 1, "x"], None]], call)
    assert value == [1, "x"]
    assert questions == [["call", ["object", 3], ["list", 1], ["dict"]]]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        7,
        None,
        ["value"],
        ["value", 1],
        ["value", {"a": 1}, None],
        ["value", ["object", "1", "x"], None],
        ["value", ["object", True, "x"], None],
        ["other", 1, 2],
        ["raise"],
        ["raise", 1, 2],
        ["raise", ["ValueError"], "x", "y"],
        ["raise", "ValueError", "x"],
        ["raise", [], "x"],
        ["raise", [1], "x"],
        ["value", 1, ["nothing"]],
    ],
)
def test_an_answer_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(wire.WireError, match=r"^the answer is no "):
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
        asked([["raise", [name], "text"]], call)
    assert type(raised.value) is kind


def test_a_walk_ends_where_the_solvers_ends() -> None:
    answers = [["value", ["object", 4, "generator"], None], ["value", 1, None], ["raise", ["StopIteration"], ""]]
    # list() would first ask for a length.
    value, questions = asked(answers, lambda link: [item + 0 for item in Remote(link, 3, "generator")])
    assert value == [1]
    assert [question[0] for question in questions] == ["iter", "next", "next"]


@pytest.mark.parametrize("own", [[1], {1}, bytearray(b"1"), {1: 1}])
def test_arguments_change_only_into_their_own_type(own: Any) -> None:
    before = own.copy()
    function = lambda link: Remote(link, 3, "function")(own)  # noqa: E731
    asked([["value", None, ["list", ["tuple", 5]]]], function)
    asked([["value", None, ["dict"]]], function)
    asked([["value", None, ["list"]]], function)
    assert own == before
    asked([["value", None, ["list", wire.encode(type(own)())]]], function)
    assert len(own) == 0


def test_a_stand_in_equals_itself_and_nothing_else() -> None:
    def compare(link: Link) -> list[bool]:
        one = Remote(link, 1, "x")
        return [one == Remote(link, 1, "y"), one == Remote(link, 2, "x"), one == 1, one == "x", one is None]

    assert asked([], compare)[0] == [True, False, False, False, False]


def test_names_of_a_solution_stand_behind_pythons_and_the_setups() -> None:
    ready = [
        "ready",
        [
            ["f", None, None],
            ["all", None, None],
            ["near", None, None],
            ["math", "math", None],
            ["np", "numpy", None],
            ["unused", None, None],
        ],
    ]
    answers = [ready, *[["value", ["object", 0, "function"], None]] * 3]
    tests = ["assert all([near(f(1), math.pi, np)])"]
    names, questions = asked(answers, lambda link: namespace(link, tests, "def near(*_):\n    pass", "f"))
    assert isinstance(names["f"], Remote)
    assert names["near"].__module__ == NAME
    assert "all" not in names
    assert "np" not in names
    assert "unused" not in names
    assert names["math"] is sys.modules["math"]
    assert [question[1] for question in questions] == ["f", "near", "f"]


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


def test_outcomes_are_handed_in_on_two_ways() -> None:
    status, report = os.pipe(), os.pipe()
    desk = Desk(status[1], report[1])
    desk.loaded()
    desk.hand_in(3, "f", "a\nb\x1b" + "x" * 500)
    assert os.read(status[0], 100) == b"lf"
    assert os.read(report[0], 1000) == b'[3, "a?b?' + b"x" * 196 + b'"]\n'
    for descriptor in (*status, *report):
        os.close(descriptor)
