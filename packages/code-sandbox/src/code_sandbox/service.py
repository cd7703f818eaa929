"""Calls functions in a confined process that is kept, for templates and patterns of others, thousands a second.

The process imports the module of the functions and then confines itself as a child of `code_sandbox.algebra_process`
does: no file but Python's own library, no network, no other process, no environment, a limit of memory. A call that
takes too long ends the process, whatever instruction it is in, and the next call starts another. Where the machine
confines nothing, the limits of time and, except on macOS, of memory remain. Calls share the process, so what they run
must be no code, but patterns, or templates in a sandbox of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from code_sandbox.algebra import START_SECONDS
from code_sandbox.algebra_process import confine, standard_library
from code_sandbox.fork_server import PLAIN_ENVIRONMENT, ForkServer, reset_after_fork
from code_sandbox.inside.channel import PARENT_CHECK_MS, Channel, close_all_but
from code_sandbox.inside.confinement import Bounds

MEMORY_BYTES = 2**30
"""Address space of a process, a fifth of which the imports take."""
MOST_BYTES = 2**28
"""The most bytes of an answer."""

_CPU_SECONDS = 86_400  # of a process, not of a call
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from code_sandbox import service; service.main(*json.loads(sys.argv[2]))"
)


class Exceeded(Exception):
    """A call took too much memory, or ended its process."""


class TooSlow(Exceeded):
    """A call took too much time."""


class Failed(Exception):
    """A function raised.

    Attributes:
        kind: the name of the exception's class.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Service:
    """A process that answers calls of the functions of a module, one at a time. Safe with threads and forks.

    Args:
        module: its name; installed, or on the path of this program.
        memory_bytes: see `MEMORY_BYTES`.
    """

    def __init__(self, module: str, memory_bytes: int = MEMORY_BYTES) -> None:
        self.module, self.memory_bytes = module, memory_bytes
        self.started = 0  # processes
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Drops the process without ending it."""
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def call(self, function: str, seconds: float, *arguments: Any) -> Any:
        """Returns what a function returns.

        Args:
            function: its name.
            seconds: the most wall-clock time.
            *arguments: of plain values; any other becomes the name of its type.

        Raises:
            TooSlow: it takes more time.
            Exceeded: it takes more memory.
            Failed: it raises.
            OSError: the process does not start.
        """
        question = json.dumps([function, arguments], default=lambda value: f"<{type(value).__name__}>").encode()
        with self._lock:
            for _ in range(2):  # the process may have ended in between
                server, self._server = self._server or self._start(), None
                try:
                    answer = server.ask(question, seconds, MOST_BYTES)
                    self._server = server
                    break
                except TimeoutError:
                    raise TooSlow(f"more than {seconds:g} seconds") from None
                except (OSError, ValueError, RecursionError):
                    continue
                finally:
                    if self._server is None:
                        server.close()
            else:
                raise Exceeded("an end of its process")
        if answer.get("kind") == "MemoryError":
            raise Exceeded(f"more than {self.memory_bytes >> 20} MiB")
        if "kind" in answer:
            raise Failed(str(answer["kind"]), str(answer["message"]))
        return answer["value"]

    def close(self) -> None:
        """Ends the process; the next call starts another."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def _start(self) -> ForkServer:
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[1])]
        request = json.dumps([self.module, self.memory_bytes])
        server = ForkServer(["-I", "-c", _BOOT, json.dumps(paths), request], PLAIN_ENVIRONMENT)
        self.started += 1
        try:
            server.receive(START_SECONDS)
        except BaseException:
            server.close()
            raise
        return server


def main(module: str, memory_bytes: int) -> None:
    """Serves calls of a module's functions until the calling program ends."""
    channel = Channel.of_standard_input()
    functions = importlib.import_module(module)
    sys.path[:] = standard_library()  # the only files that the child may read
    confinement, _ = confine()
    child = confinement.fork(False)
    if not child:
        try:
            descriptor = channel.socket.detach()
            with os.fdopen(descriptor, "rb", closefd=False) as lines:
                confinement.enter(Bounds(memory_bytes, _CPU_SECONDS, 0), False)
                close_all_but(descriptor)
                _write(descriptor, {"level": confinement.level})
                for line in lines:
                    _write(descriptor, _answer(functions, line))
        finally:
            os._exit(0)
    channel.socket.close()  # the calling program sees the end of the child
    while not os.waitpid(child, os.WNOHANG)[0]:
        if channel.is_orphan:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(PARENT_CHECK_MS / 1000)


def _answer(functions: Any, line: bytes) -> dict[str, Any]:
    try:
        name, arguments = json.loads(line)
        value = getattr(functions, name)(*arguments)
        if len(json.dumps(value)) > MOST_BYTES:
            raise MemoryError
        return {"value": value}
    except Exception as error:
        return {"kind": type(error).__name__, "message": str(error)[:1000]}


def _write(descriptor: int, answer: dict[str, Any]) -> None:
    data = memoryview(json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(descriptor, data) :]
