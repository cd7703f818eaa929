"""Whether two answers are equal by algebra, asked of confined processes that end with the question (C3, Appendix E).

The `math-verify` library reads both answers as LaTeX and compares them with SymPy. An answer may be an attack: it may
try to become a program, and a tower of powers keeps one instruction of C busy for ever and takes all memory on the
way. The library's own time limit is an alarm, which works in the main thread only and interrupts no instruction. So

- only plain notation is asked about (`code_sandbox.notation`);
- each question is computed by a confined child of its own, forked from a process that has the libraries and never
  sees a question (`code_sandbox.algebra_process`);
- a child has limits of processor time and of memory, which the operating system keeps (on macOS, which knows no limit
  of address space, that of time alone), and is killed when time is up;
- questions of several threads are computed side by side by one process, and what a question came to is remembered, so
  that one which was given up is not tried again.

Where the machine confines nothing (macOS, Windows, some containers), the algebra is refused unless the environment
has `CODE_SANDBOX_ACCEPT_NO_ISOLATION=1`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from code_sandbox.fork_server import FairSemaphore, ForkServer, processors, reset_after_fork
from code_sandbox.notation import refusal_of_text

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
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from code_sandbox import algebra_process; algebra_process.main(*json.loads(sys.argv[2]))"
)


class GivenUp(Exception):
    """A question found no answer: time or memory was up, the numbers were too large, or the library failed."""


class Broken(RuntimeError):
    """The process does not work at all, for any question."""


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
        self.at_once = at_once or 2 * processors()
        self.consent = consent
        self.started = 0  # how often
        self.asked = 0  # children
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Forgets the process, without ending it, and what questions came to."""
        self._lock = threading.Lock()
        self._turns = FairSemaphore(self.at_once)
        self._server: ForkServer | None = None
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
        """What a child answers, nothing if the process that forks has ended."""
        near, far = socket.socketpair()
        with near:
            near.settimeout(self.wall_seconds + 10.0)
            with far:
                near.sendall(question)
                with self._lock:
                    server = self._running()
                    try:
                        server.send(b"?", [far.fileno()])
                    except OSError:
                        self._stop()
                        return b""
                    self.asked += 1
            letter = b""
            try:
                letter = near.recv(1)
            except TimeoutError:
                return b"t"
            except OSError:
                pass
            if not letter:
                with self._lock:
                    if self._server is server:  # and no other thread has started another
                        self._stop()
            return letter

    def _running(self) -> ForkServer:
        if self._server is not None and self._server.lives:
            return self._server
        self._stop()
        if not hasattr(os, "fork"):
            raise Broken("the checker of algebra needs a system that can fork a process; use Linux, macOS or WSL.")
        # The folder of the current program is left out: an answer is checked by what is installed.
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[1])]
        words = [self.memory_bytes, self.cpu_seconds, self.wall_seconds, os.environ.get(self.consent) == "1"]
        try:
            server = ForkServer(["-I", "-c", _BOOT, json.dumps(paths), json.dumps(words)], _ENVIRONMENT)
        except OSError as error:
            raise Broken(f"the checker of algebra does not start ({error}).") from error
        self._server = server
        self.started += 1
        report: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            report = server.receive(START_SECONDS)
        if "level" in report:
            return server
        self._stop()
        if "unconfined" in report:
            raise Broken(
                "algebra on answers that nobody has read must run confined, and this machine has neither Landlock "
                f"nor user namespaces ({report['unconfined']}); use a Linux that has, or set {self.consent}=1."
            )
        why = report.get("failure", "it ended at once, or did not get ready in time")
        raise Broken(f"the checker of algebra does not start ({why}).")

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
