"""Real processes, real attacks, and no leftovers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from code_sandbox import algebra
from code_sandbox.algebra import CONSENT, Broken, GivenUp, Worker
from code_sandbox.notation import refusal_of_text

ENDLESS = "{" * 400 + "1" + "}" * 400
"""The parser of LaTeX takes twice as long for each brace."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A worker for all tests, since its start takes most of their time, with a secret in the environment."""
    worker = Worker(cpu_seconds=1, at_once=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_secret")
        yield worker
    worker.close()


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}", True),
        (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}", True),
        ("x^2+1", "1+x^2", True),
        ("x^2+1", "x^2-1", False),
        (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)", True),
        (r"(-\infty,2)\cup(3,\infty)", r"(-\infty,2]\cup(3,\infty)", False),
        (r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}", r"\begin{pmatrix} 0.2 \\ -3.6 \end{pmatrix}", True),
        (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 2 & 1 \end{pmatrix}", False),
        ("5x-7y+11z+4=0", "10x-14y+22z+8=0", True),
        ("2^{4950}", "4^{2475}", True),
        ("6-5i", "-5i+6", True),
        (r"\frac{3}{13}-\frac{2}{13}i", r"\frac{1}{3+2i}", True),
        ("(2+i)(2-i)", "5", True),
        ("R-r", "0", False),
        ("R-r", "-r+R", True),
        (r"\pi", "3.141592653589793", False),
        (r"2\pi/10^{20}", r"3\pi/10^{20}", False),
        (r"[0,\pi]", "[0,3.141593]", False),
        (r"\sqrt{2}\sqrt{3}-\sqrt{6}", "0", True),
        ("xy=1", "y=1/x", True),
        ("x^2+1=0", "x^2+2=0", False),
        ("x<2", "-2x>-4", True),
        ("x<2", "2x>4", False),
        ("5", "5c", False),
        ("3", r"\frac{1", False),
        ("2", r"\gcd(10^{20}+8,10^{20}+6)", True),
        ("1", r"\gcd(10^{20}+8,10^{20}+6)", False),
        ("5", r"\gcd(10^{40},10^{40}+5)", True),
        ("12", r"\lcm(4,6)", True),
        (r"\frac{1}{2}", r"\int_0^1 x dx", True),
        (r"\frac{\sqrt{\pi}}{2}", r"\int_0^{\infty} e^{-x^2} dx", True),
        (r"\frac{1}{3}", r"\int_0^1 x dx", False),
        (r"10^{\frac{5+\sqrt{13}}{6}}", r"10^{\frac{\sqrt{13}+5}{6}}", True),
        ("3", r"\int_0^\infty", False),
        ("3", "答", False),
    ],
)
def test_algebra_decides(worker: Worker, gold: str, answer: str, equal: bool) -> None:
    assert worker.equal(gold, answer) is equal


def test_an_answer_without_end_is_given_up_and_the_next_one_checked(worker: Worker) -> None:
    with pytest.raises(GivenUp, match="no result within 1 seconds of CPU time"):
        worker.equal("2", ENDLESS)
    assert worker.equal("x+1", "1+x") is True


@pytest.mark.parametrize(
    "attack", ["9^{9^{9^9}}", "10000000!", "10^{10^{10}}", "((10^9)!)!", "2^{6000000000}", r"\gcd(10^{10^{10}},7)"]
)
def test_numbers_beyond_all_bounds_are_not_computed(worker: Worker, attack: str) -> None:
    for gold, answer in ((attack, "x"), ("x", attack)):
        with pytest.raises(GivenUp, match="does not compute with"):
            worker.equal(gold, answer)


def test_what_was_given_up_is_remembered(worker: Worker) -> None:
    before = worker._remembered.cache_info().misses
    for _ in range(3):
        with pytest.raises(GivenUp, match="CPU time"):
            worker.equal("3", ENDLESS)
    assert worker.equal("x+2", "2+x") is worker.equal("x+2", "2+x") is True
    assert worker._remembered.cache_info().misses == before + 2


def test_a_text_too_long_to_be_asked_is_refused_at_once(worker: Worker) -> None:
    assert worker.equal("1+" * 3_000 + "1", "3001") is False
    assert refusal_of_text("1+" * 3_000) == "the algebra does not read 6000 characters"


@pytest.mark.parametrize("letter", [b"w", b"x"])
def test_what_a_busy_machine_did_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch, letter: bytes) -> None:
    busy, answers = Worker(), iter([letter, b"e"])
    monkeypatch.setattr(busy, "_letter", lambda question: next(answers))
    with pytest.raises(GivenUp, match="too slow"):
        busy.equal("x+3", "3+x")
    assert busy.equal("x+3", "3+x") is True


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "REMEMBERED", 2)
    monkeypatch.setattr(Worker, "_ask", lambda self, gold, answer: gold == answer)
    bounded = Worker()
    for number in range(5):
        bounded.equal("x", f"x+{number}")
    assert bounded._remembered.cache_info().currsize == 2


def test_slow_questions_do_not_block_others(worker: Worker) -> None:
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(worker.equal, f"x+{place}", ENDLESS) for place in range(3)]
        assert pool.submit(worker.equal, "x+7", "7+x").result() is True
        assert not any(one.done() for one in slow)  # each takes at least a second of the CPU
        assert all(isinstance(one.exception(), GivenUp) for one in slow)


def test_text_in_unknown_notation_starts_no_process(worker: Worker) -> None:
    before = worker._remembered.cache_info().misses
    assert not worker.equal(r"\sum_{k=1}^{3} k", "6")
    assert not worker.equal("6", r"\text{six}")
    assert worker._remembered.cache_info().misses == before


def test_the_process_sees_nothing_of_its_parents_environment(worker: Worker) -> None:
    worker.equal("x", "x")
    assert worker._server is not None
    assert os.environ["HF_TOKEN"] == "hf_secret"
    told = Path(f"/proc/{worker._server.pid}/environ").read_text().rstrip("\0").split("\0")
    names = {"PATH", "LANG", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert {line.partition("=")[0] for line in told} <= names


def test_a_killed_process_is_replaced(worker: Worker) -> None:
    worker.equal("x+20", "20+x")
    assert worker._server is not None
    os.kill(worker._server.pid, signal.SIGKILL)
    with contextlib.suppress(GivenUp):  # if it asks before the end is known
        worker.equal("x+21", "21+x")
    assert worker.equal("x+22", "22+x") is True


def test_many_threads_share_one_process(worker: Worker) -> None:
    worker.equal("x+23", "23+x")
    before = worker._server
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: worker.equal(f"x+{n % 3}", f"{n % 2}+x"), range(48)))
    assert found == [n % 3 == n % 2 for n in range(48)]
    assert worker._server is before


def test_a_question_that_is_interrupted_leaves_no_result_for_the_next(worker: Worker) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            worker.equal("x+4", ENDLESS)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert worker.equal("x+8", "x-8") is False
    assert worker.equal("x+8", "8+x") is True


COLD = algebra._BOOT.replace("algebra_process.main", "del algebra_process._WARM[1:]; algebra_process.main")
"""Starts with one of the examples that warm the parser, which take half of the time."""


def program(text: str, tmp_path: Path) -> subprocess.Popen[str]:
    path = tmp_path / "program.py"
    path.write_text(f"from code_sandbox import algebra\nalgebra._BOOT = {COLD!r}\n{textwrap.dedent(text)}")
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)


def test_a_fork_starts_its_own_process_and_leaves_its_parents_alone(tmp_path: Path) -> None:
    run = program(
        """
        import os
        from code_sandbox.algebra import Worker
        WORKER = Worker()

        WORKER.equal("x", "x")
        first = WORKER._server.pid
        child = os.fork()
        if child == 0:
            good = WORKER.equal("x+1", "1+x") and WORKER._server.pid != first
            WORKER.close()
            os._exit(0 if good else 1)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(ended, WORKER.equal("x+1", "1+x"), WORKER._server.pid == first)
        """,
        tmp_path,
    )
    assert run.communicate(timeout=120)[0].split() == ["0", "True", "True"]


@pytest.mark.parametrize(
    ("ending", "busy"),
    [
        ("os.kill(os.getpid(), 9)", True),
        ("os.kill(os.getpid(), 9)", False),
        ("os._exit(0)", False),
        ("sys.exit(0)", True),
    ],
)
def test_the_process_ends_with_its_parent_however_that_ends(tmp_path: Path, ending: str, busy: bool) -> None:
    run = program(
        f"""
        import os, sys, threading, time
        from code_sandbox.algebra import Worker
        WORKER = Worker()

        WORKER.equal("x", "x")
        print(WORKER._server.pid, flush=True)
        if {busy}:
            threading.Thread(target=lambda: WORKER.equal("2", "{{" * 400 + "1" + "}}" * 400), daemon=True).start()
            time.sleep(0.5)
        {ending}
        """,
        tmp_path,
    )
    with run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        run.wait(120)
    for _ in range(600):
        if ended(worker):
            break
        time.sleep(0.1)
    assert ended(worker)


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_process_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(Broken, match="the checker of algebra does not start"):
        Worker().equal("x", "x")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "_BOOT", "import sys; sys.modules['math_verify'] = None; " + algebra._BOOT)
    with pytest.raises(Broken, match=r"math_verify.*pip install"):
        Worker().equal("x", "x")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker on a machine that confines nothing."""
    lacking = "algebra_process.confine = lambda: (algebra_process.Confinement(algebra_process.NONE), 'no Landlock'); "
    monkeypatch.setattr(algebra, "_BOOT", COLD.replace("algebra_process.main", lacking + "algebra_process.main"))
    worker = Worker(cpu_seconds=1)
    yield worker
    worker.close()


def test_a_machine_that_confines_nothing_refuses_algebra(bare: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONSENT, raising=False)
    with pytest.raises(Broken, match=f"must run confined.*no Landlock.*{CONSENT}=1"):
        bare.equal("x+1", "1+x")


def test_who_consents_has_algebra_there_too(bare: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONSENT, "1")
    assert bare.equal("x+1", "1+x") is True
    with pytest.raises(GivenUp, match="CPU time"):
        bare.equal("2", ENDLESS)
