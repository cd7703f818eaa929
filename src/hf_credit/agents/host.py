"""The process that has imported a program and is forked for every run of it; it has nothing else and no thread.

It is told what to do in lines of JSON, and answers in lines of JSON. When whoever told it is gone, all runs end.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib
import json
import math
import os
import random
import selectors
import shutil
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

_TAIL = 2000  # characters of what a run that crashed had printed last
_PR_SET_PDEATHSIG = 1
_CLOSING_SECONDS = 4.0  # that what tidies up has, where all ends
_MANY_MODULES = 50  # of a package, whose import takes a run longer than all else


class _Run:
    """A run in a process of its own.

    Attributes:
        task: its own.
        process: its id, and that of its group.
        result: what it writes its result to.
        folder: its own.
        printed: what it and its children print.
    """

    def __init__(self, task: dict[str, Any], process: int, result: int, folder: Path, printed: BinaryIO) -> None:
        self.task = task
        self.process = process
        self.result = result
        self.folder = folder
        self.printed = printed
        self.read = b""

    def end(self) -> dict[str, Any]:
        """Ends what is left of it, and says what came of it."""
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
    """Imports the program that the first line names, and starts and stops runs until `link` is closed."""
    lines = link.makefile("rb", buffering=0)  # what comes later is read from the socket itself
    asked = json.loads(lines.readline())
    os.environ.update(HOME=asked["folder"])
    try:
        program, settings = _loaded(asked)
        scorer, closer = (None if one is None else _imported(one) for one in (settings.score, settings.close))
        _send(link, {"settings": dataclasses.asdict(settings)})
        os.environ.update(json.loads(lines.readline())["environment"])
        gc.collect()
        gc.freeze()  # what is collected in a fork would be copied for it
        _serve(link, program, scorer, closer)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _send(link, {"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
    finally:
        shutil.rmtree(os.environ["HOME"], ignore_errors=True)


def _loaded(asked: Mapping[str, Any]) -> tuple[Callable[..., Any], Settings]:
    if isinstance(asked["agent"], str):
        found = _imported(asked["agent"])
        program = found.function if isinstance(found, Agent) else found
        known = dataclasses.asdict(found.settings) if isinstance(found, Agent) else {}
    else:
        program, known = functools.partial(_command, asked["agent"]), {}
    return program, Settings(**{**known, **asked["settings"]})


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


def _serve(
    link: socket.socket,
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
            shutil.rmtree(run.folder, ignore_errors=True)
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
                            told = json.loads(line)
                            if "stop" in told:
                                if (run := runs.pop(told["stop"], None)) is not None:
                                    selector.unregister(run.result)
                                    end(run)
                            else:
                                run = _forked(told, program, scorer, [link, *runs.values()])
                                runs[told["start"]] = run
                                selector.register(run.result, selectors.EVENT_READ, told["start"])
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
    """The process that tidies up behind a run, and deletes its folder."""
    if process := os.fork():
        return process
    try:
        _let_go(others)
        os.chdir(run.folder)
        closer(dict(run.task), run.folder)
    except BaseException:
        traceback.print_exc()
    finally:
        shutil.rmtree(run.folder, ignore_errors=True)
        sys.stderr.flush()
        os._exit(0)


def _let_go(others: list[Any]) -> None:
    """Closes, in a fork, the link and what other runs write to."""
    for other in others:
        os.close(other.result if isinstance(other, _Run) else other.fileno())


def _send(link: socket.socket, message: Mapping[str, Any]) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


def _forked(
    told: Mapping[str, Any], program: Callable[..., Any], scorer: Callable[..., Any] | None, others: list[Any]
) -> _Run:
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=os.environ["HOME"]))
    printed = tempfile.TemporaryFile()  # noqa: SIM115  # the run's, closed at its end
    ours, theirs = os.pipe()
    parent, process = os.getpid(), os.fork()
    if process:
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it may have done so, or be gone
            os.setpgid(process, process)
        os.close(theirs)
        return _Run(told["task"], process, ours, folder, printed)
    try:
        os.setpgid(0, 0)
        with contextlib.suppress(AttributeError, OSError):  # Linux: a killed host leaves no run behind
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.close(ours)
        _let_go(others)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        known = set(sys.modules)
        result = {**_result(told, folder, program, scorer), "imported": _large_packages(sys.modules.keys() - known)}
        sys.stdout.flush()
        written = json.dumps(result).encode() + b"\n"
        while written:
            written = written[os.write(theirs, written) :]
    finally:
        os._exit(0)


def _result(
    told: Mapping[str, Any], folder: Path, program: Callable[..., Any], scorer: Callable[..., Any] | None
) -> dict[str, Any]:
    model = Model(
        base_url=told["base_url"],
        api_key=told["key"],
        seed=told["seed"],
        folder=folder,
        name=told["name"],
        _reward_key=told["reward_key"],
    )
    os.environ.update(model_environment(model))
    os.chdir(folder)
    random.seed(model.seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(model.seed % 2**32)
    try:
        answer = program(dict(told["task"]), model)
    except BaseException as error:
        return {"raised": f"{type(error).__name__}: {error}"[:500], "traceback": traceback.format_exc()}
    try:
        worth = answer if scorer is None else scorer(dict(told["task"]), answer)
        if not isinstance(worth, Real) or not math.isfinite(worth):
            rule = "a program without a scorer must return" if scorer is None else "a scorer must return"
            raise ValueError(f"{rule} a finite number, got {repr(worth)[:100]}; mend it, or name a score.")
        return {"outcome": float(worth)}
    except BaseException as error:
        return {"unscored": f"{type(error).__name__}: {error}"[:500], "traceback": traceback.format_exc()}


def _large_packages(modules: Collection[str]) -> list[str]:
    """The packages of which these are many."""
    counts = Counter(name.partition(".")[0] for name in modules)
    return sorted(name for name, count in counts.items() if count >= _MANY_MODULES)


def _command(command: list[str], task: Mapping[str, Any], model: Model) -> Any:
    """What a command prints for a task on its standard input: a number where it is one, and text otherwise."""
    done = subprocess.run(command, input=json.dumps(task), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"the command ended with exit code {done.returncode}")
    with contextlib.suppress(ValueError):
        return float(done.stdout)
    return done.stdout.strip()
