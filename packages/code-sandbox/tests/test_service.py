"""Calls in a confined process that is kept: what they may not do, and that the next call works."""

from __future__ import annotations

import os
import threading

import pytest

from code_sandbox.algebra_process import confine
from code_sandbox.inside.confinement import NONE
from code_sandbox.service import Exceeded, Failed, Service, TooSlow


@pytest.fixture
def service():
    made: list[Service] = []

    def of(module, **options):
        made.append(Service(module, **options))
        return made[-1]

    yield of
    for one in made:
        one.close()


def confined() -> bool:
    """Whether this machine confines, asked in a child, since the question changes the process."""
    if not (child := os.fork()):
        os._exit(confine()[0].level == NONE)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_are_answered_by_one_process(service):
    one = service("operator")
    assert [one.call("add", 30, number, 1) for number in range(50)] == list(range(1, 51))
    assert one.call("concat", 30, "a" * 2**20, "\n\ud800é") == "a" * 2**20 + "\n\ud800é"
    assert one.started == 1


def test_a_call_in_an_instruction_of_c_ends_in_time_and_the_next_one_works(service):
    one = service("operator")
    with pytest.raises(TooSlow, match=r"more than 0\.3 seconds"):
        one.call("pow", 0.3, 9, 9**9)
    assert one.call("add", 30, 1, 2) == 3
    assert one.started == 2


def test_a_call_of_too_much_memory_fails_and_the_next_one_works(service):
    one = service("operator")
    with pytest.raises(Exceeded, match="more than 1024 MiB"):
        one.call("mul", 30, "a", 2_500_000_000)
    assert one.call("add", 30, 1, 2) == 3
    assert one.started == 1


def test_a_process_that_was_killed_is_started_again(service):
    one = service("os")
    one.call("getpid", 30)
    with pytest.raises(Exceeded, match="an end of its process"):
        one.call("_exit", 30, 0)
    assert one.call("fspath", 30, "x") == "x"
    assert one.started == 3  # the call was tried twice


def test_an_exception_keeps_its_kind_and_message(service):
    with pytest.raises(Failed, match="division by zero") as found:
        service("operator").call("truediv", 30, 1, 0)
    assert found.value.kind == "ZeroDivisionError"


def test_the_process_has_no_variable_of_the_user(service, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    one = service("os")
    assert [one.call("getenv", 30, name) for name in ("HF_TOKEN", "HOME", "USER")] == [None] * 3


@pytest.mark.skipif(not confined(), reason="this machine confines nothing")
def test_the_process_reaches_no_file_network_or_process(service, tmp_path):
    (tmp_path / "file").write_text("secret")
    one = service("os")
    for function, arguments in (
        ("listdir", ["/etc"]),
        ("open", [str(tmp_path / "file"), os.O_RDONLY]),
        ("mkdir", [str(tmp_path / "new")]),
        ("fork", []),
        ("kill", [os.getpid(), 0]),
    ):
        with pytest.raises(Failed) as found:
            one.call(function, 30, *arguments)
        assert found.value.kind == "PermissionError"
    with pytest.raises(Failed):
        service("socket").call("create_connection", 30, ["127.0.0.1", 9])
    assert not (tmp_path / "new").exists()


def test_threads_and_forks_have_their_answers(service):
    one = service("operator")
    found: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda at=at: found.update({at: one.call("mul", 60, at, 2)})) for at in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {at: 2 * at for at in range(8)}
    if not (child := os.fork()):
        os._exit(one.call("add", 60, 3, 4))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert one.call("add", 60, 1, 1) == 2
    assert one.started == 1
