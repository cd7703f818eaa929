"""Whether two answers are equal by algebra, asked of a process that can be killed (paper C3, Appendix E).

The `math-verify` library reads both answers as LaTeX and compares them with SymPy. An answer may be an attack: a tower
of powers keeps one instruction of C busy for ever, and takes all memory on the way. The library's own time limit is an
alarm, which works in the main thread only and interrupts no instruction. So it works in a process of its own, which

- is started by the first question and kept, as its start takes half a second;
- has limits of processor time for each question and of memory, which the operating system keeps (on macOS, which knows
  no limit of address space, that of time alone), and nothing of its parent's environment;
- is killed when time is up, and replaced with the next question;
- ends with its parent: when the pipe closes, when it finds itself an orphan, or when its time is up.

One process serves all threads of a parent, one question at a time; a fork of the parent starts its own.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

CPU_SECONDS = 3
"""Processor time of a question; most take a few hundredths of it."""
WALL_SECONDS = 20.0
"""A question ends after this also where the process was kept from the processor."""
MEMORY_BYTES = 1 << 30
"""Address space of the process, a fifth of which it takes to start."""
START_SECONDS = 120.0
"""How long the process may take to start on a busy machine."""

# One thread: buffers of a pool of threads count as address space, on a large machine all of it.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hf_credit.verifiers.symbolic import _serve; _serve(int(sys.argv[2]), int(sys.argv[3]))"
)


class GivenUp(Exception):
    """A question found no answer: time or memory was up, or the library failed."""


class Broken(RuntimeError):
    """The process does not work at all, for any question."""


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """The process, and the way to ask it.

    Args:
        cpu_seconds, wall_seconds: of a question, see `CPU_SECONDS` and `WALL_SECONDS`.
        memory_bytes: of the process, see `MEMORY_BYTES`.
    """

    def __init__(
        self, cpu_seconds: int = CPU_SECONDS, wall_seconds: float = WALL_SECONDS, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self.cpu_seconds = cpu_seconds
        self.wall_seconds = wall_seconds
        self.memory_bytes = memory_bytes
        self.started = 0  # how often
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        _WORKERS.add(self)

    def equal(self, gold: str, answer: str) -> bool:
        """Whether two texts in LaTeX are equal by algebra; texts that the library cannot read are not.

        Raises:
            GivenUp: time or memory was up, or the library failed.
            Broken: the process cannot be started.
        """
        with self._lock:
            found = self._ask([gold, answer, self.cpu_seconds])
            if found.get("last"):
                self._stop()
            if "failure" in found:
                raise GivenUp(found["failure"])
            return bool(found["equal"])

    def close(self) -> None:
        """Ends the process; the next question starts another."""
        with self._lock:
            self._stop()

    def kill(self) -> None:
        """Ends the process at once, without waiting for a question that another thread has asked."""
        process = self._process
        if process is not None:
            process.kill()

    def after_fork(self) -> None:
        """In a forked child: forgets the parent's process without ending it."""
        self._lock = threading.Lock()
        process, self._process, pipe, self._pipe = self._process, None, self._pipe, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.returncode = 0  # not a child of this process: nothing to wait for

    def _ask(self, question: list[Any]) -> dict[str, Any]:
        pipe = self._running()
        try:
            pipe.send_bytes(json.dumps(question).encode())
            if pipe.poll(self.wall_seconds):
                found: dict[str, Any] = json.loads(pipe.recv_bytes(10_000))
                return found
        except (EOFError, OSError, ValueError):
            raise GivenUp(self._why(self._stop())) from None
        except BaseException:  # interrupted: what comes next through the pipe would be taken for the next result
            self._stop()
            raise
        self._stop()
        raise GivenUp(f"no result within {self.wall_seconds:g} seconds")

    def _running(self) -> Connection:
        if self._process is not None and self._process.poll() is None and self._pipe is not None:
            return self._pipe
        self._stop()
        # The folder of the current program is left out: an answer is checked by what is installed.
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[2])]
        near, far = socket.socketpair()
        ours, theirs = Connection(near.detach()), Connection(far.detach())
        with theirs:
            words = [json.dumps(paths), str(theirs.fileno()), str(self.memory_bytes)]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _BOOT, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_ENVIRONMENT,
                    start_new_session=True,  # an interrupt from the keyboard is for the parent
                )
            except OSError as error:
                ours.close()
                raise Broken(f"the checker of algebra does not start ({error})") from error
        self._pipe = ours
        self.started += 1
        try:
            ready = self._pipe.poll(START_SECONDS) and json.loads(self._pipe.recv_bytes(10_000))
        except (EOFError, OSError):
            ready = None
        if ready != "ready":
            self._stop()
            why = ready["failure"] if isinstance(ready, dict) else "it ended at once, or did not get ready in time"
            raise Broken(
                f"the checker of algebra does not start ({why}; pip install 'hf-credit[math]' brings its library)"
            )
        return self._pipe

    def _stop(self) -> int | None:
        """Ends the process; how it had ended before, `None` if it had not."""
        pipe, self._pipe, process, self._process = self._pipe, None, self._process, None
        if pipe is not None:
            pipe.close()
        if process is None:
            return None
        try:
            ended: int | None = process.wait(0.2)  # with the pipe closed, a working process ends by itself
        except subprocess.TimeoutExpired:
            ended = None
            process.kill()
            process.wait()
        return ended

    def _why(self, ended: int | None) -> str:
        if ended == -signal.SIGPROF:
            return f"no result within {self.cpu_seconds} seconds of processor time"
        return "the process ended without a result" if ended is None else f"the process ended with {ended}"


# In the process


def _serve(descriptor: int, memory: int) -> None:
    """Answers questions until the pipe closes."""
    import resource

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    pipe = Connection(descriptor)
    parent = os.getppid()
    try:
        compare = _comparison()
    except ImportError as error:
        pipe.send_bytes(json.dumps({"failure": str(error)}).encode())
        return
    for limit, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):  # macOS knows no limit of address space
            continue
    pipe.send_bytes(b'"ready"')
    while True:
        while not pipe.poll(5.0):
            if os.getppid() != parent:  # another process of a dead parent may hold the pipe open
                return
        try:
            gold, answer, seconds = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        # The kernel ends the process then, whatever instruction it is in.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found: dict[str, Any]
        try:
            found = {"equal": compare(gold, answer)}
        except Exception as error:
            found = {"failure": f"{type(error).__name__}: {error}"[:300]}
            found["last"] = isinstance(error, MemoryError | RecursionError)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if _peak() > memory // 2:
            found["last"] = True  # the library may have swallowed that memory was up
        pipe.send_bytes(json.dumps(found).encode())


def _peak() -> int:
    """The most memory that this process has held, in bytes."""
    import resource

    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        # Not on Linux, where a program inherits this number from the one that started it, however large that was.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _comparison() -> Any:
    """The function that compares; importing what it takes is what takes long."""
    import logging

    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    latex = [LatexExtractionConfig(boxed_match_priority=-1)]

    def read(text: str) -> Any:
        return parse(
            f"${text}$", latex, fallback_mode="no_fallback", extraction_mode="first_match",
            parsing_timeout=None, raise_on_error=True,
        )  # fmt: skip

    def compare(gold: str, answer: str) -> bool:
        return bool(verify(read(gold), read(answer), timeout_seconds=None, raise_on_error=True))

    compare("x + 1", "1 + x")  # builds what is built once
    return compare


WORKER = Worker()
"""The process that all threads share."""


@atexit.register
def _end() -> None:
    for worker in list(_WORKERS):
        worker.kill()


def _fork() -> None:
    for worker in list(_WORKERS):
        worker.after_fork()


os.register_at_fork(after_in_child=_fork)
