"""Starts the process of `hf_credit.agents.host` from the training process, and talks to it."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hf_credit.agents.host import send
from hf_credit.agents.program import Settings
from hf_credit.files import OwnFolder
from hf_credit.trust import search_here

logger = logging.getLogger(__name__)

_KEPT = (
    *("PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "JAVA_HOME", "NODE_PATH"),
    *("OMP_NUM_THREADS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
"""Environment variables that programs need. Others do not reach them, since they may be secrets."""

_START = (
    "import socket, sys; sys.path[:] = {path!r}; from hf_credit.agents.host import main; "
    "main(socket.socket(fileno={fd}))"
)

Ended = Callable[[Mapping[str, Any]], None]


class HostDiedError(ConnectionError):
    """The process that forks programs has ended."""


class Host:
    """A process that has imported a program, and its runs.

    Args:
        agent: `"module:name"` of the program, or the words of a command.
        settings: that override the program's own.

    Attributes:
        settings: of the program.
        folder: with the folders of the runs; the last of the two processes to end deletes it.
        dead: whether the process has ended.

    Raises:
        ValueError: the program or its scorer cannot be imported, or a setting is not possible.
    """

    def __init__(self, agent: str | Sequence[str], settings: Mapping[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
        own = {name: os.environ[name] for name in settings.get("environment", ()) if name in os.environ}
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        path = list(map(os.path.abspath, sys.path))  # an empty entry is another folder in a run
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START.format(path=path, fd=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**kept, **local, **own, "PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._link = ours
        self._lines = ours.makefile("rb")
        self._sending = threading.Lock()
        self._runs: dict[int, Ended] = {}
        self._started = 0
        self.dead = False
        self.folder = OwnFolder(prefix="hf-credit-agent-")
        self._finalizer = weakref.finalize(self, _close, os.getpid(), ours, self._process, self.folder)
        send(ours, {"agent": agent, "settings": dict(settings), "folder": str(self.folder.path)})
        answer = json.loads(self._lines.readline() or b'{"failed": "it ended before it had imported the program"}')
        if "failed" in answer:
            self.close()
            self._lines.close()
            if answer.get("traceback"):
                logger.error("A program could not be imported.\n%s", answer["traceback"])
            raise ValueError(
                f"an agent must be importable as 'module:name', with its scorer and settings, got {agent!r} "
                f"({answer['failed']}); correct the program, or the name."
            )
        self.settings = Settings(**answer["settings"])
        search_here([self.settings.judge, self.settings.canonical])  # the program, which runs by consent, names them
        wanted = {name: os.environ[name] for name in self.settings.environment if name in os.environ}
        send(ours, {"environment": wanted})
        reader = threading.Thread(
            target=_read, args=(self._lines, self._runs, weakref.ref(self)), name="hf-credit-agents", daemon=True
        )
        reader.start()

    def start(self, request: Mapping[str, Any], ended: Ended) -> int:
        """Starts a run; returns its number, for `stop`.

        Args:
            request: as `hf_credit.agents.host` reads it.
            ended: called once, in another thread, with the result, unless the run is stopped before.

        Raises:
            HostDiedError: the process has ended.
        """
        with self._sending:
            self._started += 1
            run = self._started
            self._runs[run] = ended
            try:
                if self.dead:
                    raise BrokenPipeError
                send(self._link, {"start": run, **request})
            except OSError:
                self._runs.pop(run, None)
                raise HostDiedError("the process that forks programs ended; it is started again.") from None
        return run

    def stop(self, run: int) -> None:
        """Ends a run and deletes its folder, unless it has ended by itself."""
        if self._runs.pop(run, None) is not None:
            with self._sending, suppress(OSError):
                send(self._link, {"stop": run})

    def close(self) -> None:
        """Ends the process and all runs."""
        self._finalizer()


def _read(lines: Any, runs: dict[int, Ended], host: weakref.ref[Host]) -> None:
    with suppress(OSError, ValueError), lines:
        for line in lines:
            answer = json.loads(line)
            if "failed" in answer:
                logger.error("The process that forks programs failed.\n%s", answer["traceback"])
            if (ended := runs.pop(answer.get("ended"), None)) is not None:
                ended(answer)
    if (owner := host()) is not None:
        owner.dead = True
    while runs:
        with suppress(KeyError):
            runs.popitem()[1]({"lost": True})


def _close(owner: int, link: socket.socket, process: subprocess.Popen[bytes], folder: OwnFolder) -> None:
    if owner != os.getpid():  # a fork, such as a data loader's, owns no run
        return
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    folder.remove()
