"""Processes that fork confined ones, for a program that may have threads, a GPU in use, and forks of its own.

A fork server (`code_sandbox.inside.supervisor`, `code_sandbox.algebra_process`) is a fresh interpreter with an
environment of its own. It ends with this program, however that ends. A fork of this program starts without servers.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # some interpreters need them to find their own library
_ENDING_SECONDS = 0.2

# One thread: the buffers of a thread pool count as address space, on a large machine all of it.
PLAIN_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The environment of a process that runs something of others: no home, no token, no folder of the user's."""


class ForkServer:
    """An interpreter that gets requests through a socket, its standard input, and ends when that closes.

    Args:
        arguments: of the command line, after the interpreter's name.
        environment: all variables of the process, but for library paths.

    Raises:
        OSError: the interpreter cannot start.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable or "python3", *arguments],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**environment, **{name: os.environ[name] for name in _KEPT if name in os.environ}},
                    cwd="/",
                    start_new_session=True,  # an interrupt from the keyboard must reach the program only
                )
        except OSError:
            self._socket.close()
            raise
        _SERVERS.add(self)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Sends a few bytes and file descriptors.

        Raises:
            OSError: the process has ended.
        """
        socket.send_fds(self._socket, [data], files)

    def ask(self, line: bytes, seconds: float, most_bytes: int) -> dict[str, Any]:
        """Sends a line and returns the next one, as `receive`, within a time for both."""
        end = time.monotonic() + seconds
        self._socket.settimeout(seconds)
        self._socket.sendall(line + b"\n")
        return self.receive(end - time.monotonic(), most_bytes)

    def receive(self, seconds: float, most_bytes: int = 2**20) -> dict[str, Any]:
        """Returns the next JSON line.

        Raises:
            OSError: no line of at most so many bytes arrived in time (`TimeoutError`), or the process has ended.
        """
        end = time.monotonic() + seconds
        data = bytearray()
        while not data.endswith(b"\n"):
            self._socket.settimeout(max(end - time.monotonic(), 0.001))
            data += (part := self._socket.recv(2**16))
            if not part or len(data) > most_bytes:
                raise ConnectionError("the process has ended, or said too much")
        self._socket.settimeout(None)
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """Ends the process and its children."""
        self._socket.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """Drops the process, which belongs to the parent of this fork."""
        self._socket.close()
        self._process.returncode = 0  # not a child of this process: nothing to wait for


def processors() -> int:
    """Returns the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_SERVERS: weakref.WeakSet[ForkServer] = weakref.WeakSet()
_HOLDERS: weakref.WeakSet[Any] = weakref.WeakSet()


def reset_after_fork(holder: Any) -> None:
    """Registers an object whose `reset()` drops its servers and locks; a fork of this program calls that."""
    _HOLDERS.add(holder)


@atexit.register
def _end() -> None:
    for server in list(_SERVERS):
        with contextlib.suppress(OSError):
            server.close()


def _forked() -> None:
    for server in list(_SERVERS):
        server.abandon()
    _SERVERS.clear()
    for holder in list(_HOLDERS):
        holder.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
