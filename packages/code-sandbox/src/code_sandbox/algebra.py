"""Whether two answers are equal by algebra, asked of confined processes that end with the question (C3, Appendix E).

The `math-verify` library reads both answers as LaTeX and compares them with SymPy. An answer may be an attack: it may
try to become a program, and a tower of powers keeps one instruction of C busy for ever and takes all memory on the
way. The library's own time limit is an alarm, which works in the main thread only and interrupts no instruction. So

- only plain notation is asked about (`code_sandbox.notation`);
- each question is computed by a confined child of its own, forked from a process that has the libraries and never
  sees a question (`code_sandbox.algebra_process`), and that gets nothing of its parent's environment;
- a child has limits of processor time and of memory, which the operating system keeps (on macOS, which knows no limit
  of address space, that of time alone), and is killed when time is up;
- questions of several threads are computed side by side, and what a question came to is remembered, so that one which
  was given up is not tried again;
- the process that forks ends with its parent: when the socket closes, or when it finds itself an orphan.

One process serves all threads of a parent; a fork of the parent starts its own. Where the machine confines nothing
(macOS, Windows, some containers), the algebra is refused unless the environment has
`CODE_SANDBOX_ACCEPT_NO_ISOLATION=1`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from pathlib import Path

from code_sandbox.notation import refusal_of_text
from code_sandbox.pool import FairSemaphore

CPU_SECONDS = 2
"""Processor time of a question; most take a few hundredths of it."""
WALL_SECONDS = 20.0
"""A question ends after this also where the process was kept from the processor."""
MEMORY_BYTES = 1 << 30
"""Address space of a child, a fifth of which it has from the start."""
START_SECONDS = 120.0
"""How long the process may take to start on a busy machine."""
REMEMBERED = 8192
"""Questions whose result is kept; one takes 4 KiB at most."""
CONSENT = "CODE_SANDBOX_ACCEPT_NO_ISOLATION"
"""The variable of the environment that lets algebra run where the machine confines nothing, if it is 1."""

# One thread: buffers of a pool of threads count as address space, on a large machine all of it.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without which some interpreters do not find their own library
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from code_sandbox import algebra_process; algebra_process.main(*json.loads(sys.argv[2]))"
)


class GivenUp(Exception):
    """A question found no answer: time or memory was up, the numbers were too large, or the library failed."""


class Broken(RuntimeError):
    """The process does not work at all, for any question."""


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """The process that forks, and the way to ask it.

    Args:
        cpu_seconds, wall_seconds: of a question, see `CPU_SECONDS` and `WALL_SECONDS`.
        memory_bytes: of a child, see `MEMORY_BYTES`.
        at_once: how many questions are computed side by side, by default twice as many as there are processors, so
            that slow ones share them with quick ones.
        consent: a name in place of `CONSENT`.
    """

    def __init__(
        self,
        cpu_seconds: int = CPU_SECONDS,
        wall_seconds: float = WALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        at_once: int | None = None,
        consent: str = CONSENT,
    ) -> None:
        self.cpu_seconds = cpu_seconds
        self.wall_seconds = wall_seconds
        self.memory_bytes = memory_bytes
        self.at_once = at_once or 2 * _processors()
        self.consent = consent
        self.started = 0  # how often
        self.asked = 0  # children
        self._forget()
        _WORKERS.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._turns = FairSemaphore(self.at_once)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._known: OrderedDict[tuple[str, str], bool | str] = OrderedDict()

    def equal(self, gold: str, answer: str) -> bool:
        """Whether two texts in LaTeX are equal by algebra; texts in no known notation are not.

        Raises:
            GivenUp: time or memory was up, the numbers were too large, or the library failed.
            Broken: the process cannot be started, or the machine cannot confine it.
        """
        if refusal_of_text(gold) or refusal_of_text(answer):
            return False
        with self._lock:
            found = self._known.get((gold, answer))
        if found is None:
            with self._turns:
                found = self._ask(gold, answer)
            with self._lock:
                self._known[gold, answer] = found
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        if isinstance(found, str):
            raise GivenUp(found)
        return found

    def close(self) -> None:
        """Ends the process, and with it all questions; the next one starts another."""
        with self._lock:
            self._stop()

    def kill(self) -> None:
        """Ends the process at once, without waiting for another thread."""
        process = self._process
        if process is not None:
            process.kill()

    def after_fork(self) -> None:
        """In a forked child: forgets the parent's process without ending it."""
        process, control = self._process, self._control
        self._forget()
        if control is not None:
            control.close()
        if process is not None:
            process.returncode = 0  # not a child of this process: nothing to wait for

    def _ask(self, gold: str, answer: str) -> bool | str:
        question = json.dumps([gold, answer]).encode()
        letter = self._letter(question) or self._letter(question)  # the process may have ended since the last one
        if letter == b"e":
            return True
        if letter == b"d":
            return False
        if letter in (b"u", b""):
            raise Broken("the checker of algebra cannot confine its process, or it ended; restart the program.")
        return {
            b"t": f"no result within {self.cpu_seconds} seconds of processor time",
            b"m": f"no result within {self.memory_bytes >> 20} MiB, or too deeply nested",
            b"r": "numbers or parts that the algebra does not compute with",
            b"f": "the library failed",
        }.get(letter, "the process ended without a result")

    def _letter(self, question: bytes) -> bytes:
        """What a child has told, nothing if the process that forks has ended."""
        near, far = socket.socketpair()
        with near:
            with far:
                near.sendall(question)
                with self._lock:
                    control = self._running()
                    process = self._process
                    try:
                        socket.send_fds(control, [b"?"], [far.fileno()])
                    except OSError:
                        self._stop()
                        return b""
                    self.asked += 1
            waiting = select.poll()
            waiting.register(near, select.POLLIN)
            end = time.monotonic() + self.wall_seconds + 10.0
            while time.monotonic() < end:
                if waiting.poll(1000):
                    letter = b""
                    with contextlib.suppress(OSError):
                        letter = near.recv(1)
                    if not letter:
                        with self._lock:
                            if self._process is process:  # and no other thread has started another
                                self._stop()
                    return letter
            return b"t"

    def _running(self) -> socket.socket:
        if self._process is not None and self._process.poll() is None and self._control is not None:
            return self._control
        self._stop()
        if not hasattr(os, "fork"):
            raise Broken("the checker of algebra needs a system that can fork a process; use Linux, macOS or WSL.")
        # The folder of the current program is left out: an answer is checked by what is installed.
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[1])]
        ours, theirs = socket.socketpair()
        consent = os.environ.get(self.consent) == "1"
        words = [theirs.fileno(), self.memory_bytes, self.cpu_seconds, self.wall_seconds, consent]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _BOOT, json.dumps(paths), json.dumps(words)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    cwd="/",
                    env=_ENVIRONMENT | {name: os.environ[name] for name in _KEPT if name in os.environ},
                    start_new_session=True,  # an interrupt from the keyboard is for the parent
                )
            except OSError as error:
                ours.close()
                raise Broken(f"the checker of algebra does not start ({error}).") from error
        self._control = ours
        self.started += 1
        report = self._report(ours)
        if "level" not in report:
            self._stop()
            if "unconfined" in report:
                raise Broken(
                    "algebra on answers that nobody has read must run confined, and this machine has neither Landlock "
                    f"nor user namespaces ({report['unconfined']}); use a Linux that has, or set {self.consent}=1."
                )
            why = report.get("failure", "it ended at once, or did not get ready in time")
            raise Broken(f"the checker of algebra does not start ({why}).")
        return ours

    def _report(self, control: socket.socket) -> dict[str, str]:
        control.settimeout(START_SECONDS)
        data = b""
        with contextlib.suppress(OSError):
            while not data.endswith(b"\n") and (more := control.recv(4096)):
                data += more
        control.settimeout(None)
        found: dict[str, str] = json.loads(data) if data.endswith(b"\n") else {}
        return found

    def _stop(self) -> None:
        control, self._control, process, self._process = self._control, None, self._process, None
        if control is not None:
            control.close()
        if process is not None:
            try:
                process.wait(0.2)  # with the socket closed, it ends by itself, and its children with it
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@atexit.register
def _end() -> None:
    for worker in list(_WORKERS):
        worker.kill()


def _fork() -> None:
    for worker in list(_WORKERS):
        worker.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)
