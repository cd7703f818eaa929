"""Processes that fork confined ones, for a program that may have threads, a GPU in use, and forks of its own.

A fork server (`code_sandbox.inside.supervisor`, `code_sandbox.algebra_process`) is a fresh interpreter with an
environment of its own. It ends when this program does, however that ends. A fork of this program has none of them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without which some interpreters do not find their own library
_ENDING_SECONDS = 0.2


class ForkServer:
    """An interpreter that is asked through a socket, its standard input, and ends when that is closed.

    Args:
        words: of the command line, behind the interpreter's name.
        environment: all that it has of one.

    Raises:
        OSError: the interpreter cannot be started.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable or "python3", *words],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**environment, **{name: os.environ[name] for name in _KEPT if name in os.environ}},
                    cwd="/",
                    start_new_session=True,  # an interrupt from the keyboard is for the program
                )
        except OSError:
            self._socket.close()
            raise
        _SERVERS.add(self)

    @property
    def pid(self) -> int:
        """The process, while it lives."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Sends a few bytes, and hands over files.

        Raises:
            OSError: the process has ended.
        """
        socket.send_fds(self._socket, [data], files)

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next line of JSON.

        Raises:
            OSError: none has come in time, or the process has ended.
        """
        self._socket.settimeout(seconds)
        data = b""
        while not data.endswith(b"\n"):
            data += (part := self._socket.recv(2**16))
            if not part:
                raise ConnectionError("the process has ended")
        self._socket.settimeout(None)
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """Ends the process and all below it."""
        self._socket.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """Forgets the process, which is another one's."""
        self._socket.close()
        self._process.returncode = 0  # not a child of this process: nothing to wait for


class FairSemaphore:
    """Lets so many in at once, first come, first served, which `threading.Semaphore` is not."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        try:
            gate.acquire()
        except BaseException:  # an interrupt while waiting
            with self._lock:
                if gate in self._waiting:
                    self._waiting.remove(gate)
                    raise
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class User(Protocol):
    """Whoever holds servers."""

    def reset(self) -> None:
        """Forgets all servers, and makes new locks."""


_SERVERS: weakref.WeakSet[ForkServer] = weakref.WeakSet()
_USERS: weakref.WeakSet[User] = weakref.WeakSet()


def reset_after_fork(user: User) -> None:
    """Lets a fork of this program start without the servers that `user` holds."""
    _USERS.add(user)


@atexit.register
def _end() -> None:
    for server in list(_SERVERS):
        with contextlib.suppress(OSError):
            server.close()


def _forked() -> None:
    for server in list(_SERVERS):
        server.abandon()
    _SERVERS.clear()
    for user in list(_USERS):
        user.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
