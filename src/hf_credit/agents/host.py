"""The process that imports a program and is forked for every run; it imports little else and has one thread.

It receives requests as lines of JSON, and answers with lines of JSON. When the requesting process ends, all runs end.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import gc
import inspect
import json
import math
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, BinaryIO

from hf_credit.agents.program import Agent, Model, Settings, model_environment
from hf_credit.files import FolderHandle, OwnFolder
from hf_credit.trust import imported, search_here

_TAIL = 2000  # last characters of the output of a crashed run
_PR_SET_PDEATHSIG = 1
_CLOSING_SECONDS = 4.0  # for functions that clean up, when this process ends
_MANY_MODULES = 50  # of a package whose import dominates the time of a run


@dataclasses.dataclass(eq=False)
class _Run:
    """A run in a process of its own.

    Attributes:
        task: its task.
        process: the id of its process and process group.
        result: a descriptor from which its result is read.
        folder: its own folder.
        printed: the output of the run and its children.
        read: the part of the result read so far.
    """

    task: dict[str, Any]
    process: int
    result: int
    folder: OwnFolder
    printed: BinaryIO
    read: bytes = b""

    def end(self) -> dict[str, Any]:
        """Ends the run and its children, and returns its result."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        os.close(self.result)
        self.printed.seek(max(0, self.printed.seek(0, os.SEEK_END) - _TAIL))
        tail = self.printed.read().decode(errors="replace")
        self.printed.close()
        with contextlib.suppress(ValueError):
            return dict(json.loads(self.read))
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return {"crashed": f"{how}; it printed last: {tail.strip()}" if tail.strip() else how}


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
        _send(link, {"settings": dataclasses.asdict(settings)})
        os.environ.update(json.loads(lines.readline())["environment"])
        _import_for_clients()
        gc.collect()
        gc.freeze()  # a collection in a fork would copy the pages
        _serve(link, folder.path, program, scorer, closer)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _send(link, {"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
    finally:
        folder.remove()


def _loaded(first: Mapping[str, Any]) -> tuple[Callable[..., Any], Settings]:
    agent = first["agent"]
    program = imported(agent) if isinstance(agent, str) else functools.partial(_command, agent)
    settings = dataclasses.asdict(program.settings) if isinstance(program, Agent) else {}
    return program, Settings(**{**settings, **first["settings"]})


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
) -> None:
    pending = b""
    runs: dict[int, _Run] = {}
    closing: set[int] = set()

    def end(run: _Run) -> dict[str, Any]:
        result = run.end()
        if closer is None:
            run.folder.remove()
        else:
            closing.add(_closing(run, closer, [link, *runs.values()]))
        return result

    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in selector.select():
                    if key.fileobj is link:
                        read = link.recv(1 << 20)
                        if not read:
                            return
                        *whole, pending = (pending + read).split(b"\n")
                        for line in whole:
                            request = json.loads(line)
                            if "stop" in request:
                                if (run := runs.pop(request["stop"], None)) is not None:
                                    selector.unregister(run.result)
                                    end(run)
                            else:
                                run = _forked(request, folder, program, scorer, [link, *runs.values()])
                                runs[request["start"]] = run
                                selector.register(run.result, selectors.EVENT_READ, request["start"])
                    elif key.data in runs:
                        run = runs[key.data]
                        read = os.read(run.result, 1 << 16)
                        run.read += read
                        if not read or run.read.endswith(b"\n"):
                            selector.unregister(run.result)
                            _send(link, {"ended": key.data, **end(runs.pop(key.data))})
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
        _no_coroutine(closer(dict(run.task), run.folder.path))
    except BaseException:
        traceback.print_exc()
    finally:
        run.folder.remove()
        sys.stderr.flush()
        os._exit(0)


def _close_all(others: list[Any]) -> None:
    """Closes, in a fork, the link and the pipes of other runs."""
    for other in others:
        os.close(other.result if isinstance(other, _Run) else other.fileno())


def _send(link: socket.socket, message: Mapping[str, Any]) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


def _forked(
    request: Mapping[str, Any],
    parent_folder: Path,
    program: Callable[..., Any],
    scorer: Callable[..., Any] | None,
    others: list[Any],
) -> _Run:
    folder = OwnFolder(parent_folder, prefix="run-", kept=True)  # a fork may remove it
    printed = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end of the run
    ours, theirs = os.pipe()
    parent, process = os.getpid(), os.fork()
    if process:
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it may have done so, or have ended
            os.setpgid(process, process)
        os.close(theirs)
        return _Run(request["task"], process, ours, folder, printed)
    try:
        os.setpgid(0, 0)
        with contextlib.suppress(AttributeError, OSError):  # Linux: runs of a killed host end with it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.close(ours)
        _close_all(others)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        known = set(sys.modules)
        result = _result(request, folder.path, program, scorer)
        result["imported"] = _large_packages(sys.modules.keys() - known)
        sys.stdout.flush()
        with open(theirs, "wb") as pipe:
            pipe.write(json.dumps(result).encode() + b"\n")
    finally:
        os._exit(0)


def _result(
    request: Mapping[str, Any], folder: Path, program: Callable[..., Any], scorer: Callable[..., Any] | None
) -> dict[str, Any]:
    model = Model(
        base_url=request["base_url"],
        api_key=request["key"],
        seed=request["seed"],
        folder=folder,
        name=request["name"],
        _reward_key=request["reward_key"],
    )
    os.environ.update(model_environment(model))
    os.chdir(folder)
    random.seed(model.seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(model.seed % 2**32)
    try:
        answer = _no_coroutine(program(dict(request["task"]), model))
    except BaseException as error:
        return {"raised": f"{type(error).__name__}: {error}"[:500], "traceback": traceback.format_exc()}
    try:
        outcome = answer if scorer is None else _no_coroutine(scorer(dict(request["task"]), answer))
        if not isinstance(outcome, Real) or not math.isfinite(outcome):
            rule = "a program without a scorer must return" if scorer is None else "a scorer must return"
            got = f"{repr(outcome)[:100]}, of type {type(outcome).__name__}"
            raise ValueError(
                f"{rule} a finite number, got {got}; return a float, such as a tensor's item(), or set score."
            )
        return {"outcome": float(outcome)}
    except BaseException as error:
        return {"unscored": f"{type(error).__name__}: {error}"[:500], "traceback": traceback.format_exc()}


def _no_coroutine(result: Any) -> Any:
    if inspect.isawaitable(result) or inspect.isasyncgen(result):
        raise TypeError(
            f"a program, score and close must be plain functions, got the {type(result).__name__} of an async def; "
            "run it inside of a plain function with asyncio.run."
        )
    return result


def _large_packages(modules: Collection[str]) -> list[str]:
    """Returns the packages with many of these modules."""
    counts = Counter(name.partition(".")[0] for name in modules)
    return sorted(name for name, count in counts.items() if count >= _MANY_MODULES)


def _command(command: list[str], task: Mapping[str, Any], model: Model) -> Any:
    """Returns the output of a command for a task on its standard input, as a number if it is one."""
    done = subprocess.run(command, input=json.dumps(task), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"the command ended with exit code {done.returncode}")
    with contextlib.suppress(ValueError):
        return float(done.stdout)
    return done.stdout.strip()
