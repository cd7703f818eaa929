"""The sandboxes that this program has started: each serves one run at a time, and as many run as there are processors.

Each is a supervisor (`code_sandbox.inside.supervisor`): a bare interpreter with an empty environment, started
with `exec` from a program that may have threads and a GPU in use. It ends when this program does, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from code_sandbox.inside.confinement import NAMESPACES, NOBODY

_START_SECONDS = 60.0
_GRACE_SECONDS = 60.0
_REPORT_BYTES = 2**20
_SOURCE = str(Path(__file__).resolve().parents[1])
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without which some interpreters do not find their own library
_ENTRY = (
    "import sys; sys.path.insert(0, sys.argv[1]); from code_sandbox.inside import supervisor; "
    "del sys.path[0]; supervisor.main(sys.argv[2])"
)


class SandboxError(RuntimeError):
    """The sandbox itself has failed, which says nothing about the code in it."""


class Supervisor:
    """One process that starts confined ones.

    Args:
        level: `"namespaces"`, `"landlock"` or `"none"`.

    Raises:
        SandboxError: the machine does not give this level.
    """

    def __init__(self, level: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = ours
        try:
            # Not -I, which would ignore the one variable that there is; -s -S -P do the rest of it.
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-s", "-S", "-P", "-c", _ENTRY, _SOURCE, level],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
                | {name: os.environ[name] for name in _KEPT if name in os.environ},
                cwd="/",
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"the interpreter {sys.executable!r} could not be started: {error}") from error
        finally:
            theirs.close()
        try:
            self._start(level)
        except BaseException:
            self.close()
            raise

    def _start(self, level: str) -> None:
        answer = self._receive(_START_SECONDS)
        if answer == {"stage": "detached"}:
            self._send({"named": level == NAMESPACES and self._name_users()})
            answer = self._receive(_START_SECONDS)
        if answer != {"stage": "ready"}:
            raise SandboxError(str(answer.get("failure", "the sandbox did not start")))

    def _name_users(self) -> bool:
        """As root, lets the code run as nobody rather than as root; others can give no user but their own."""
        if os.geteuid() != 0:
            return False
        try:
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{self._process.pid}/{name}", "w") as file:
                    file.write(f"0 0 1\n{NOBODY} {NOBODY} 1")
        except OSError:
            return False
        return True

    def run(self, request: Mapping[str, Any], code: bytes, tests: bytes) -> tuple[str, dict[int, str]]:
        """One letter for each test's outcome, and what there is to say about some.

        Raises:
            SandboxError: the sandbox itself has failed.
        """
        with _files(code, tests, b"") as files:
            self._send(dict(request), files)
            answer = self._receive(request["wall_seconds"] + _GRACE_SECONDS)
            letters = answer.get("letters")
            if not isinstance(letters, str) or len(letters) != request["tests"]:
                raise SandboxError(str(answer.get("failure", "the sandbox gave no answer")))
            return letters, _messages(os.pread(files[2], _REPORT_BYTES, 0))

    def _send(self, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode() + b"\n"], files)
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error

    def _receive(self, seconds: float) -> dict[str, Any]:
        self._socket.settimeout(seconds)
        data = b""
        try:
            while not data.endswith(b"\n"):
                data += (part := self._socket.recv(2**16))
                if not part:
                    raise SandboxError("the sandbox has ended")
        except OSError as error:
            raise SandboxError(f"the sandbox gave no answer: {error}") from error
        answer: dict[str, Any] = json.loads(data)
        return answer

    @property
    def pid(self) -> int:
        """The process, while it lives."""
        return self._process.pid

    def close(self) -> None:
        """Ends the process and all below it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _files(*contents: bytes) -> Iterator[list[int]]:
    """Files without a name, in memory where the system has them, and a null device for each of the two processes.

    The device is opened here for each run, because whoever shares an opened file shares its flags.
    """
    descriptors: list[int] = []
    try:
        for content in contents:
            if hasattr(os, "memfd_create"):
                descriptors.append(os.memfd_create("code-sandbox", os.MFD_CLOEXEC))
            else:
                with tempfile.TemporaryFile() as file:
                    descriptors.append(os.dup(file.fileno()))
            view = memoryview(content)
            while view:
                view = view[os.write(descriptors[-1], view) :]
            os.lseek(descriptors[-1], 0, os.SEEK_SET)
        for _ in range(2):
            descriptors.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _messages(report: bytes) -> dict[int, str]:
    found = {}
    for line in report.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            index, text = json.loads(line)
            found[int(index)] = str(text)[:300]
    return found


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


class SandboxPool:
    """Supervisors that wait for work, by level. Safe for many threads, and for a program that forks."""

    def __init__(self, at_once: int | None = None) -> None:
        self._at_once = at_once or _processors()
        self._reset()

    def _reset(self) -> None:
        self._idle: dict[str, list[Supervisor]] = defaultdict(list)
        self._lock = threading.Lock()
        self._turns = FairSemaphore(self._at_once)
        self._closed = False

    def run(self, level: str, request: Mapping[str, Any], code: bytes, tests: bytes) -> tuple[str, dict[int, str]]:
        """As `Supervisor.run`, waiting for a free processor; one that has failed is replaced and asked once more.

        Raises:
            SandboxError: the sandbox has failed twice.
        """
        with self._turns:
            try:
                return self._run(level, request, code, tests)
            except SandboxError:
                return self._run(level, request, code, tests)

    def _run(self, level: str, request: Mapping[str, Any], code: bytes, tests: bytes) -> tuple[str, dict[int, str]]:
        with self._lock:
            supervisor = self._idle[level].pop() if self._idle[level] else None
        supervisor = supervisor or Supervisor(level)
        try:
            result = supervisor.run(request, code, tests)
        except BaseException:
            supervisor.close()
            raise
        with self._lock:
            if not self._closed:
                self._idle[level].append(supervisor)
                return result
        supervisor.close()
        return result

    def forget(self) -> None:
        """After a fork: the supervisors are the other process's."""
        global _OTHERS
        _OTHERS += [supervisor for idle in self._idle.values() for supervisor in idle]
        for supervisor in _OTHERS:
            supervisor._socket.close()
        self._reset()

    def close(self) -> None:
        """Ends all that wait; one that is at work ends after it."""
        with self._lock:
            self._closed = True
            pool = [supervisor for idle in self._idle.values() for supervisor in idle]
            self._idle.clear()
        for supervisor in pool:
            supervisor.close()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_OTHERS: list[Supervisor] = []
"""What a forked process has inherited and must not end."""

POOL = SandboxPool()
"""Those of this program."""

atexit.register(POOL.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.forget)
