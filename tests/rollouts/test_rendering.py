"""The process that runs downloaded templates: what it may not do, and that it is kept, or started again."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from code_sandbox.isolation import isolation
from hf_credit.tokenizer_process import Process

RENDER = "apply_chat_template"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    if made._server is not None:
        made._server.close()


def rendered(process: Process, template: str, seconds: float = 30.0) -> object:
    answer = process.call(RENDER, seconds, conversation=HELLO, tokenize=False, chat_template=template)
    return answer.get("value", answer)


def test_all_templates_are_rendered_by_one_process(process: Process) -> None:
    assert [rendered(process, f"{number}" + "{{ messages[0].content }}") for number in range(50)] == [
        f"{number}hello" for number in range(50)
    ]
    long = "é\n\ud800" * 2**20
    options = {"conversation": [{"content": long}], "chat_template": "{{ messages[0].content }}", "tokenize": False}
    assert process.call(RENDER, 30.0, **options)["value"] == long
    assert process.started == 1


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize("text", ["{{ 9 ** (9 ** 9) }}", LOOP])
def test_a_template_that_takes_too_long_ends_its_process_and_the_next_one_works(process: Process, text: str) -> None:
    with pytest.raises(TimeoutError, match=r"more than 0\.3 seconds"):
        rendered(process, text, 0.3)
    assert rendered(process, "{{ 1 + 2 }}") == "3"
    assert process.started == 2


def test_a_template_that_takes_too_much_memory_fails_and_the_next_one_works(process: Process) -> None:
    with pytest.raises(MemoryError, match="more than 1024 MiB"):
        rendered(process, "{{ 'a' * 2500000000 }}")
    with pytest.raises(MemoryError, match="more than 1024 MiB"):  # it fits there, and not in this process
        rendered(process, "{{ 'a' * 300000000 }}")
    assert rendered(process, "{{ 1 + 2 }}") == "3"


def test_a_process_that_was_killed_is_started_again(process: Process) -> None:
    rendered(process, "")
    assert process._server is not None
    os.kill(process._server.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process._server.pid, os.WEXITED | os.WNOWAIT)
    assert rendered(process, "{{ 1 + 2 }}") == "3"


def test_an_interrupted_call_leaves_no_answer_for_the_next_one(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(process, "")
    timer = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        rendered(process, LOOP)
    assert rendered(process, "{{ 1 + 2 }}") == "3"


def test_an_error_of_a_template_has_its_kind_and_message(process: Process) -> None:
    assert rendered(process, "{{ 1 / 0 }}") == {"kind": "ZeroDivisionError", "message": "division by zero"}


def test_threads_and_forks_have_their_own_answers(process: Process) -> None:
    found: dict[int, object] = {}

    def call(at: int) -> None:
        found[at] = rendered(process, f"{at}")

    threads = [threading.Thread(target=call, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {at: f"{at}" for at in range(8)}
    if not (child := os.fork()):
        os._exit(7 if rendered(process, "x") == "x" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert rendered(process, "y") == "y"
    assert process.started == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_has_no_variable_folder_or_file_of_the_user(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    rendered(process, "")
    assert process._server is not None
    about = f"/proc/{process._server.pid}"
    with open(f"{about}/environ", "rb") as file:
        names = {line.partition(b"=")[0].decode() for line in file.read().split(b"\0") if line}
    assert names <= {"PATH", "LANG", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LD_LIBRARY_PATH"}
    assert os.readlink(f"{about}/cwd") == "/"
    if isolation().level != "none":
        with open(f"{about}/status") as status:
            assert "Seccomp:\t2" in status.read()
