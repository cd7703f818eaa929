"""The process that imports a program and is forked for every run; it imports little else and has one thread.

It receives requests as lines of JSON, and answers with lines of JSON. When the requesting process ends, all runs end.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import gc
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hf_credit.agents.played import finished, large_packages, played, run_command
from hf_credit.agents.program import TEMPORARY, Agent, Settings
from hf_credit.files import FolderHandle
from hf_credit.trust import imported, search_here

_TAIL = 2000  # last bytes of the output of a crashed run
_MOST_RESULT = 2**18  # bytes of what a run sends
_SENT = ("outcome", "unscored", "raised", "traceback", "imported")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLOSING_SECONDS = 4.0  # for functions that clean up, when this process ends
_MEASURED_SECONDS = 0.5  # at least between two measurements of what runs have written
_PAUSE = 20  # times as long as the last one took, so that a folder with many files holds up no other run


@dataclasses.dataclass(eq=False)
class _Run:
    """A run in a process of its own.

    Attributes:
        task: its task.
        process: the id of its process and process group.
        result: a descriptor from which its result is read.
        printed: a descriptor from which the output of the run and its children is read.
        folder: its own folder.
        read: the part of the result read so far.
        tail: the last output.
    """

    task: dict[str, Any]
    process: int
    result: int
    printed: int
    folder: FolderHandle
    read: bytes = b""
    tail: bytes = b""

    def drain(self) -> bool:
        """Reads what the pipe holds of its output; returns whether it may print more."""
        with contextlib.suppress(BlockingIOError):
            read = os.read(self.printed, 1 << 20)
            self.tail = (self.tail + read)[-_TAIL:]
            return bool(read)
        return True

    def end(self) -> dict[str, Any]:
        """Ends the run, and returns its result."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        self.drain()
        for descriptor in (self.result, self.printed):
            os.close(descriptor)
        with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError):
            sent = json.loads(self.read).items()  # by the code of the run, perhaps
            return {key: value for key, value in sent if key in _SENT}
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        tail = self.tail.decode(errors="replace").strip()
        return {"crashed": f"{how}; it printed last: {tail}" if tail else how}


def main(link: socket.socket) -> None:
    """Imports the program that the first line names, and starts and stops runs until `link` closes."""
    lines = link.makefile("rb", buffering=0)  # unbuffered: later lines are read from the socket itself
    first = json.loads(lines.readline())
    folder = FolderHandle(first["folder"])  # the program may set every variable of the environment, HOME included
    os.environ.update(HOME=first["folder"])
    search_here(first)
    try:
        program, settings = _loaded(first)
        search_here([settings.score, settings.close])
        scorer, closer = (None if one is None else imported(one) for one in (settings.score, settings.close))
        send(link, {"settings": dataclasses.asdict(settings)})
        os.environ.update(json.loads(lines.readline())["environment"])
        _import_for_clients()
        gc.collect()
        gc.freeze()  # a collection in a fork would copy the pages
        _serve(link, folder.path, program, scorer, closer, settings.disk_bytes)
    except BaseException as error:
        with contextlib.suppress(OSError):
            send(link, {"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
    finally:
        folder.remove()


def _loaded(first: Mapping[str, Any]) -> tuple[Callable[..., Any], Settings]:
    agent = first["agent"]
    program = imported(agent) if isinstance(agent, str) else None
    settings = dataclasses.asdict(program.settings) if isinstance(program, Agent) else {}
    chosen = Settings(**{**settings, **first["settings"]})
    return program or functools.partial(run_command, agent, chosen.score is not None), chosen


def _import_for_clients() -> None:
    """Makes a client, if the program has imported `openai`, whose first client imports what each run would import."""
    if (openai := sys.modules.get("openai")) is not None:
        with contextlib.suppress(Exception):
            openai.OpenAI(api_key="none", base_url="http://127.0.0.1").chat.completions  # noqa: B018


def _serve(
    link: socket.socket,
    folder: Path,
    program: Callable[..., Any],
    scorer: Callable[..., Any] | None,
    closer: Callable[..., Any] | None,
    disk_bytes: int,
) -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pending, imported_with = b"", _children()
    runs: dict[int, _Run] = {}
    closing: set[int] = set()

    def end(run: _Run) -> dict[str, Any]:
        for descriptor in (run.result, run.printed):
            with contextlib.suppress(KeyError):
                selector.unregister(descriptor)
        result = run.end()
        _end_orphans({one.process for one in runs.values()} | closing | imported_with)
        if closer is None:
            run.folder.remove()
        else:
            closing.add(_closing(run, closer, [link, *runs.values()]))
        return result

    def end_large() -> float:
        """Ends runs whose files take more than they may; returns the seconds until the next time."""
        began = time.monotonic()
        for number in [number for number, run in runs.items() if run.folder.takes_more(disk_bytes)]:
            end(runs.pop(number))
            why = f"the files of a run must take at most {disk_bytes} bytes, got more; write less, or raise disk_bytes"
            send(link, {"raised": why, "traceback": "", "ended": number, "large": True})
        return max(_MEASURED_SECONDS, _PAUSE * (time.monotonic() - began))

    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        due = time.monotonic()
        try:
            while True:
                if runs and time.monotonic() >= due:
                    due = time.monotonic() + end_large()
                for key, _ in selector.select(_MEASURED_SECONDS if runs else None):
                    if key.fileobj is link:
                        read = link.recv(1 << 20)
                        if not read:
                            return
                        *whole, pending = (pending + read).split(b"\n")
                        for line in whole:
                            request = json.loads(line)
                            if "stop" in request:
                                if (run := runs.pop(request["stop"], None)) is not None:
                                    end(run)
                                continue
                            number = request["start"]
                            try:
                                run = _forked(request, folder, program, scorer, [link, *runs.values()], disk_bytes)
                            except OSError as error:  # no process, memory, file or disk is left
                                send(link, {"crashed": f"no process, as {error}", "ended": number})
                                continue
                            runs[number] = run
                            for descriptor in (run.result, run.printed):
                                selector.register(descriptor, selectors.EVENT_READ, number)
                    elif (run := runs.get(key.data)) is None:
                        continue
                    elif key.fd == run.printed:
                        if not run.drain():
                            selector.unregister(run.printed)
                    else:
                        read = os.read(run.result, 1 << 16)
                        run.read += read
                        if not read or run.read.endswith(b"\n") or len(run.read) > _MOST_RESULT:
                            send(link, {**end(runs.pop(key.data)), "ended": key.data})
                closing -= {process for process in closing if os.waitpid(process, os.WNOHANG)[0]}
        finally:
            while runs:
                end(runs.popitem()[1])
            deadline = time.monotonic() + _CLOSING_SECONDS
            while closing and time.monotonic() < deadline:
                time.sleep(0.02)
                closing -= {process for process in closing if os.waitpid(process, os.WNOHANG)[0]}
            for process in closing:
                os.kill(process, signal.SIGKILL)


def _closing(run: _Run, closer: Callable[..., Any], others: list[Any]) -> int:
    """Forks a process that cleans up after a run, and deletes its folder; returns its id."""
    if process := os.fork():
        return process
    try:
        _close_all(others)
        os.chdir(run.folder.path)
        finished(closer(dict(run.task), run.folder.path))
    except BaseException:
        traceback.print_exc()
    finally:
        run.folder.remove()
        sys.stderr.flush()
        os._exit(0)


def _close_all(others: list[Any]) -> None:
    """Closes, in a fork, the link and the pipes of other runs."""
    for other in others:
        for descriptor in (other.result, other.printed) if isinstance(other, _Run) else (other.fileno(),):
            os.close(descriptor)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        ctypes.CDLL(None).prctl(option, value)


def _children() -> set[int]:
    """Returns the children of this process, where Linux tells them."""
    with contextlib.suppress(OSError):
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    return set()


def _end_orphans(known: set[int]) -> None:
    """Ends the children of this process that are unknown: what ended runs have started, whatever its session.

    A live run keeps its own, as it is their reaper. Children of an orphan are orphans after it.
    """
    while orphans := _children() - known:
        for orphan in orphans:
            try:
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)
            except PermissionError:
                known = {*known, orphan}


def send(link: socket.socket, message: Mapping[str, Any]) -> None:
    """Sends a message to the other one of the two processes."""
    link.sendall(json.dumps(message).encode() + b"\n")


def _forked(
    request: Mapping[str, Any],
    parent_folder: Path,
    program: Callable[..., Any],
    scorer: Callable[..., Any] | None,
    others: list[Any],
    disk_bytes: int,
) -> _Run:
    folder = parent_folder / request["folder"]
    (folder / TEMPORARY).mkdir(0o700, parents=True)
    handle, pipes = FolderHandle(folder), list[int]()
    try:
        for _ in range(2):
            pipes += os.pipe()
        parent, process = os.getpid(), os.fork()
    except OSError:
        for descriptor in pipes:
            os.close(descriptor)
        handle.remove()
        raise
    ours, theirs, output, printing = pipes
    if process:
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it may have done so, or have ended
            os.setpgid(process, process)
        os.close(theirs)
        os.close(printing)
        os.set_blocking(output, False)
        return _Run(request["task"], process, ours, output, handle)
    try:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # runs of a killed host end with it
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != parent:
            os._exit(1)
        for descriptor in (ours, output):
            os.close(descriptor)
        _close_all(others)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printing, 1)
        os.dup2(printing, 2)
        os.close(printing)
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk_bytes, disk_bytes))
        known, own = set(sys.modules), os.getpid()
        result = played(request, folder, program, scorer)
        result["imported"] = large_packages(sys.modules.keys() - known, known)
        with contextlib.suppress(Exception):  # it may have closed it
            sys.stdout.flush()
        if os.getpid() == own:  # and no fork that the program made
            with open(theirs, "wb") as pipe:
                pipe.write(json.dumps(result).encode() + b"\n")
    finally:
        os._exit(0)
