"""The sandboxes of this program: each serves one run at a time, and as many work in parallel as it has CPUs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from code_sandbox.fork_server import ForkServer, processors, reset_after_fork
from code_sandbox.inside.confinement import NAMESPACES, NOBODY

_START_SECONDS = 60.0
_GRACE_SECONDS = 60.0
_REPORT_BYTES = 2**20
_SOURCE = str(Path(__file__).resolve().parents[1])
_ENTRY = (
    "import sys; sys.path.insert(0, sys.argv[1]); from code_sandbox.inside import supervisor; "
    "del sys.path[0]; supervisor.main(sys.argv[2])"
)


class SandboxError(RuntimeError):
    """The sandbox itself failed. This implies nothing about the code in it."""


class Supervisor(ForkServer):
    """A process that starts confined ones (`code_sandbox.inside.supervisor`).

    Args:
        level: `"namespaces"`, `"landlock"` or `"none"`.

    Raises:
        SandboxError: the machine lacks this level.
    """

    def __init__(self, level: str) -> None:
        # Not -I, which ignores the environment; -s -S -P are the rest of it.
        arguments = ["-s", "-S", "-P", "-c", _ENTRY, _SOURCE, level]
        try:
            super().__init__(arguments, {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"})
        except OSError as error:
            raise SandboxError(f"the interpreter {sys.executable!r} could not be started: {error}") from error
        try:
            answer = self._answer(_START_SECONDS)
            if answer == {"stage": "detached"}:
                self.send(json.dumps({"named": level == NAMESPACES and self._name_users()}).encode() + b"\n")
                answer = self._answer(_START_SECONDS)
            if answer != {"stage": "ready"}:
                raise SandboxError(str(answer.get("failure", "the sandbox did not start")))
        except BaseException:
            self.close()
            raise

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            return self.receive(seconds)
        except OSError as error:
            raise SandboxError(f"the sandbox gave no answer: {error}") from error

    def _name_users(self) -> bool:
        """As root, lets the code run as nobody instead of root. Only root may map other users than itself."""
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
        """Returns a letter for the outcome of each test, and messages by the test's index.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        with _files(code, tests, b"") as files:
            try:
                self.send(json.dumps(dict(request)).encode() + b"\n", files)
            except OSError as error:
                raise SandboxError(f"the sandbox has ended: {error}") from error
            answer = self._answer(request["wall_seconds"] + _GRACE_SECONDS)
            letters = answer.get("letters")
            if not isinstance(letters, str) or len(letters) != request["tests"]:
                raise SandboxError(str(answer.get("failure", "the sandbox gave no answer")))
            return letters, _messages(os.pread(files[2], _REPORT_BYTES, 0))


@contextlib.contextmanager
def _files(*contents: bytes) -> Iterator[list[int]]:
    """Opens anonymous files, in memory where the system supports it, and a null device for each of the two processes.

    Each run opens its own device, because processes that share an open file share its flags.
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
    messages = {}
    for line in report.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            index, text = json.loads(line)
            messages[int(index)] = str(text)[:300]
    return messages


class SandboxPool:
    """Supervisors that wait for work, by level. Safe with threads, and in a program that forks."""

    def __init__(self, at_once: int | None = None) -> None:
        self._at_once = at_once or processors()
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Drops all supervisors without ending them."""
        self._idle: dict[str, list[Supervisor]] = defaultdict(list)
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(self._at_once)
        self._closed = False

    def run(self, level: str, request: Mapping[str, Any], code: bytes, tests: bytes) -> tuple[str, dict[int, str]]:
        """Calls `Supervisor.run` once a CPU is free. If the supervisor fails, a new one tries once more.

        Raises:
            SandboxError: the sandbox failed twice.
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

    def close(self) -> None:
        """Ends all idle supervisors; a busy one ends after its run."""
        with self._lock:
            self._closed = True
            pool = [supervisor for idle in self._idle.values() for supervisor in idle]
            self._idle.clear()
        for supervisor in pool:
            supervisor.close()


POOL = SandboxPool()
"""The pool of this program."""
