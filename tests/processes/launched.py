"""Scripts in processes of their own, each a copy of one that has imported everything: most of what a short run takes.

None of them sees a GPU: there may be fewer than processes, FSDP takes one wherever it sees one, runs are bitwise the
same on CPUs alone, and a copy of a process that has asked for a GPU cannot use it.

Whatever depends on how a program is started, or on what it imports, is tested with a program that is started afresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

MOST_SECONDS = 300
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
# As tests find it before any of them changes it.
_ENVIRONMENT = {**os.environ, **NO_GPU}


class Copy:
    """A copy that runs a script, with what is asked of a `multiprocessing.Process`.

    Args:
        to: the socket that leads to who copies.
        told: what `copied.run` is to do.
    """

    def __init__(self, to: socket.socket, told: Mapping[str, Any]) -> None:
        to.sendall(json.dumps(told).encode() + b"\n")
        self.sentinel = to.detach()
        weakref.finalize(self, os.close, self.sentinel)
        self.pid = self._read()
        self._code: int | None = None

    def _read(self) -> int:
        """The number in the next line, and no more than that is read."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.sentinel, 1) or b"who copies has ended\n"
        return int(line)

    @property
    def exitcode(self) -> int | None:
        """What it ended with, less than 0 by a signal; `None` while it runs."""
        self.join(0)
        return self._code

    def join(self, seconds: float | None = None) -> None:
        """Waits until it has ended, at most for some seconds."""
        if self._code is None and connection.wait([self.sentinel], seconds):
            self._code = self._read()

    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _connected(place: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(str(place))
    except BaseException:
        found.close()
        raise
    return found


@functools.cache
def _copied() -> Path:
    """The socket at which copies are asked for, of a process that the first to ask starts."""
    folder = Path(tempfile.gettempdir(), f"copied-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    # Processes that run tests side by side have this name in common.
    place = folder / os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            connected = _connected(place)
        except (FileNotFoundError, ConnectionRefusedError):
            place.unlink(missing_ok=True)
            _serve(place)
            connected = _connected(place)
    connected.detach()  # open as long as this process, so that the other lasts as long
    return place


def _serve(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)
        listener.set_inheritable(True)
        here = os.path.dirname(__file__)
        path = os.pathsep.join([*filter(None, [_ENVIRONMENT.get("PYTHONPATH")]), here])
        command = [sys.executable, f"{here}/copied.py", str(listener.fileno())]
        started = os.posix_spawn(sys.executable, command, {**_ENVIRONMENT, "PYTHONPATH": path})
        os.waitpid(started, 0)  # it goes on in a child of its own


def start(
    script: str | Path,
    *arguments: object,
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Copy:
    """Starts `python script arguments`.

    Args:
        script: its path.
        arguments: of its command line.
        log: gets what it prints; what it complains of goes to the same name with `.err` after it.
        environment: variables besides those of this process. What is read on import was read before.
        folder: where it works; here if `None`.
    """
    # A command that ran in this process has set what an interpreter of others must not have.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    told = {
        "script": str(script),
        "arguments": [str(one) for one in arguments],
        "log": str(log),
        "environment": {**inherited, **NO_GPU, **(environment or {})},
        "folder": str(folder or Path.cwd()),
        "path": sys.path,
    }
    return Copy(_connected(_copied()), told)


class Started:
    """A script as `start` starts it, with what is asked of a `Popen`."""

    def __init__(self, script: str | Path, *arguments: object, log: Path) -> None:
        self.process = start(script, *arguments, log=log)

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> None:
        self.process.join()


def finish(process: Copy, log: Path) -> str:
    """What a process printed until it ended, which has to be well."""
    process.join(MOST_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode == 0, f"exit status {process.exitcode}\n{_errors(log).read_text(errors='replace')[-3000:]}"
    return log.read_text(encoding="utf-8")


def completed(command: Sequence[object], log: Path, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """What `subprocess.run(command, capture_output=True)` gives of a process that may fail.

    Args:
        command: a script and its arguments.
        log: as for `start`, as is `how`.
    """
    process = start(*command, log=log, **how)  # type: ignore[arg-type]
    process.join(MOST_SECONDS)
    process.kill()  # if it has not ended
    process.join()
    assert process.exitcode is not None
    return subprocess.CompletedProcess(command, process.exitcode, log.read_bytes(), _errors(log).read_bytes())


def launch(
    script: str | Path, *arguments: object, processes: int, folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Runs a script in several processes that find each other, as `torchrun` has it; each has to end well.

    Args:
        script, arguments, environment: as for `start`.
        processes: how many.
        folder: gets their logs.
    """
    # Their meeting place is here, at a port that is this process's own; they know by the last variable.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    both = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **(environment or {}),
    }
    logs = [folder / f"process_{rank}.log" for rank in range(processes)]
    started = [
        start(script, *arguments, log=log, environment={**both, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank, log in enumerate(logs)
    ]
    try:
        waiting = {process.sentinel: (process, log) for process, log in zip(started, logs, strict=True)}
        while waiting:
            ended = connection.wait(list(waiting), MOST_SECONDS)
            assert ended, f"{len(waiting)} of {processes} processes still ran after {MOST_SECONDS} seconds"
            for sentinel in ended:
                finish(*waiting.pop(sentinel))
    finally:
        for process in started:
            process.kill()
            process.join()


def _errors(log: Path) -> Path:
    return log.with_name(f"{log.name}.err")
