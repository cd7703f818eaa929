"""Compares two answers by algebra, each comparison in a confined process that ends with it (C3, Appendix E).

The `math-verify` library reads both answers as LaTeX and compares them with SymPy. An answer may be an attack: it may
try to become a program, and a tower of powers keeps one instruction of C busy for ever and uses up all memory.
The library's own time limit is an alarm, which works in the main thread only and interrupts no instruction. So

- only plain notation is accepted (`code_sandbox.notation`);
- each comparison has a confined child of its own, forked from a process that has the libraries and never sees an
  answer (`code_sandbox.algebra_process`);
- the operating system limits the CPU time and memory of a child (on macOS, which has no limit of address space,
  the time only), and kills it when time is up;
- one process computes the comparisons of several threads side by side, and results are cached, failures included.

Where the machine confines nothing (macOS, Windows, some containers), the algebra is refused unless the environment
has `CODE_SANDBOX_ACCEPT_NO_ISOLATION=1`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from code_sandbox.fork_server import PLAIN_ENVIRONMENT, ForkServer, processors, reset_after_fork
from code_sandbox.notation import refusal_of_text

CPU_SECONDS = 2
"""CPU time of a comparison; most take a few hundredths of it."""
WALL_SECONDS = 20.0
"""Wall-clock time of a comparison, which also ends one that gets no CPU."""
MEMORY_BYTES = 1 << 30
"""Address space of a child, a fifth of which it uses from the start."""
START_SECONDS = 120.0
"""Time for the process to start on a busy machine."""
REMEMBERED = 8192
"""Cached comparisons, at most 4 KiB each."""
CONSENT = "CODE_SANDBOX_ACCEPT_NO_ISOLATION"
"""The environment variable that, set to 1, lets algebra run where the machine confines nothing."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from code_sandbox import algebra_process; algebra_process.main(*json.loads(sys.argv[2]))"
)


class GivenUp(Exception):
    """A comparison has no result: it ran out of time or memory, its numbers are too large, or the library failed."""


class Broken(RuntimeError):
    """The process works for no comparison at all."""


class Worker:
    """Compares answers in children of a forking process.

    Args:
        cpu_seconds, wall_seconds: of a comparison, see `CPU_SECONDS` and `WALL_SECONDS`.
        memory_bytes: of a child, see `MEMORY_BYTES`.
        at_once: the number of comparisons side by side; by default two for each CPU, so that slow ones do not
            block quick ones.
        consent: the name of an environment variable in place of `CONSENT`.
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
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Drops the process without ending it, and the cache."""
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(self.at_once)
        self._server: ForkServer | None = None
        self._remembered = functools.lru_cache(REMEMBERED)(self._ask)

    def equal(self, gold: str, answer: str) -> bool:
        """Returns whether two LaTeX texts are equal by algebra; `False` if a text is in unknown notation.

        Raises:
            GivenUp: the comparison ran out of time or memory, its numbers are too large, or the library failed.
            Broken: the process does not start, or the machine cannot confine it.
        """
        if refusal_of_text(gold) or refusal_of_text(answer):
            return False
        result = self._remembered(gold, answer)
        if isinstance(result, str):
            raise GivenUp(result)
        return result

    def close(self) -> None:
        """Ends the process and all its comparisons; the next comparison starts another."""
        with self._lock:
            self._stop()

    def _ask(self, gold: str, answer: str) -> bool | str:
        question = json.dumps([gold, answer]).encode()
        with self._turns:
            letter = self._letter(question) or self._letter(question)  # the process may have ended in between
        if letter in (b"e", b"d"):
            return letter == b"e"
        if letter in (b"u", b""):
            raise Broken("the checker of algebra cannot confine its process, or it ended; restart the program.")
        reasons = {
            b"t": f"no result within {self.cpu_seconds} seconds of CPU time",
            b"m": f"no result within {self.memory_bytes >> 20} MiB, or too deeply nested",
            b"r": "numbers or parts that the algebra does not compute with",
            b"f": "the library failed",
        }
        if letter not in reasons:  # not remembered, as the machine may have been busy
            raise GivenUp("the process ended without a result, or was too slow")
        return reasons[letter]

    def _letter(self, question: bytes) -> bytes:
        """Returns the answer of a child, nothing if the forking process has ended."""
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
            letter = b""
            try:
                letter = near.recv(1)
            except TimeoutError:
                return b"w"
            except OSError:
                pass
            if not letter:
                with self._lock:
                    if self._server is server:  # another thread may have started another
                        self._stop()
            return letter

    def _running(self) -> ForkServer:
        if self._server is not None and self._server.is_alive:
            return self._server
        self._stop()
        if not hasattr(os, "fork"):
            raise Broken("the checker of algebra needs a system that can fork a process; use Linux, macOS or WSL.")
        # Without the current folder: only installed libraries check an answer.
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[1])]
        limits = [self.memory_bytes, self.cpu_seconds, self.wall_seconds, os.environ.get(self.consent) == "1"]
        try:
            server = ForkServer(["-I", "-c", _BOOT, json.dumps(paths), json.dumps(limits)], PLAIN_ENVIRONMENT)
        except OSError as error:
            raise Broken(f"the checker of algebra does not start ({error}).") from error
        self._server = server
        report: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            report = server.receive(START_SECONDS)
        if "level" in report:
            return server
        self._stop()
        if "unconfined" in report:
            raise Broken(
                "algebra on untrusted answers must run confined, and this machine has neither Landlock "
                f"nor user namespaces ({report['unconfined']}); use a Linux with one of them, or set {self.consent}=1."
            )
        reason = report.get("failure", "it ended at once, or was not ready in time")
        raise Broken(f"the checker of algebra does not start ({reason}).")

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
