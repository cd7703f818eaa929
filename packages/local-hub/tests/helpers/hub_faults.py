"""Failures on demand, for tests of the Hub and of its clients: lost replies, cut connections, a full disk, kill -9."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import errno
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from local_hub.hooks import Hooks
from local_hub.running import Served, serving

Effect = Literal["status", "delay", "cut", "cut_after", "lose_reply", "disk_full", "kill"]
_request: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("request", default=("", ""))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of failure and when it happens.

    Args:
        effect: `"status"` answers with `status` instead; `"delay"` waits `seconds` first; `"cut"` closes the
            connection without a reply; `"cut_after"` after `bytes` of the reply's body; `"lose_reply"` does the work
            and closes the connection then; `"disk_full"` and `"kill"` (SIGKILL to the process) happen at `point`.
        method: of the requests, a regular expression that matches all of it.
        path: of the requests, without the query, a regular expression found in it.
        point: of `POINTS`, `"request"` or `"reply"`, for `"kill"`; for `"disk_full"` one where something is written.
            The other effects happen at the request.
        nth: the how many-th match alone, from 1; each one if `None`.
        probability: with which a match fails.
        status, headers: of `"status"`.
        seconds: of `"delay"`.
        bytes: of `"cut_after"`.
    """

    effect: Effect
    method: str = ".*"
    path: str = ""
    point: str = "request"
    nth: int | None = None
    probability: float = 1.0
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    bytes: int = 0


class Faults(Hooks):
    """The failures of one server.

    Args:
        rules: checked in order; the first that applies happens, and delays in addition.
        seed: of the draws of probabilities. With requests one after another, the same seed fails the same ones.
    """

    def __init__(self, rules: Sequence[Fault] = (), seed: int = 0) -> None:
        self.rules = list(rules)
        self._random = random.Random(seed)
        self._matches: dict[int, int] = {}
        self._lock = threading.Lock()

    def reach(self, point: str) -> None:
        """Fails at a point within the server.

        Raises:
            OSError: the disk is full.
        """
        if not self.rules:
            return
        method, path = _request.get()
        for rule in self._happening(point, method, path):
            if rule.effect == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if rule.effect == "disk_full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def wrap(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request with `app`, unless a failure prevents it."""
        if not self.rules:
            await app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        _request.set((method, path))
        happening = self._happening("request", method, path)
        for delay in happening:
            if delay.effect == "delay":
                await asyncio.sleep(delay.seconds)
        rule = next((one for one in happening if one.effect != "delay"), None)
        if rule is None:
            await app(scope, receive, self._replying(send))
        elif rule.effect == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif rule.effect == "status":
            await JSONResponse({"error": "a failure on demand."}, rule.status, rule.headers)(scope, receive, send)
        elif rule.effect == "cut":
            await _cut(send)
        elif rule.effect == "lose_reply":
            await app(scope, receive, _nowhere)
            await _cut(send)
        else:
            await app(scope, receive, _shortened(send, rule.bytes))

    def _replying(self, send: Send) -> Send:
        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.reach("reply")
            await send(message)

        return reply

    def _happening(self, point: str, method: str, path: str) -> list[Fault]:
        found = []
        with self._lock:
            for number, rule in enumerate(self.rules):
                if rule.point != point or not re.fullmatch(rule.method, method) or not re.search(rule.path, path):
                    continue
                self._matches[number] = self._matches.get(number, 0) + 1
                if rule.nth not in (None, self._matches[number]) or self._random.random() >= rule.probability:
                    continue
                found.append(rule)
        return found


async def _nowhere(message: Message) -> None:
    pass


def _shortened(send: Send, most: int) -> Send:
    """Passes on `most` bytes of the body, then cuts the connection."""
    left = most

    async def shortened(message: Message) -> None:
        nonlocal left
        if left < 0:
            return
        if message["type"] != "http.response.body":
            await send(message)
            return
        body = message.get("body", b"")
        if len(body) <= left:
            left -= len(body)
            await send(message)
            return
        await send({"type": "http.response.body", "body": body[:left], "more_body": True})
        await asyncio.sleep(0.01)  # lets the bytes leave
        left = -1
        await _cut(send)

    return shortened


async def _cut(send: Send) -> None:
    """Closes the connection under uvicorn, as a failing network does; ASGI has no message for that."""
    cycle: Any = getattr(send, "__self__", None)
    if cycle is None:
        raise ConnectionError(
            "only a server of this package can cut a connection, got another one; run it by serving()."
        )
    cycle.transport.abort()
    while not cycle.disconnected:
        await asyncio.sleep(0.001)


@functools.cache
def _keeper() -> subprocess.Popen[str]:
    """A process that has imported everything, and is copied for each Hub that may be killed."""
    keeper = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(keeper.communicate)
    return keeper


@contextlib.contextmanager
def serving_in_process(folder: Path, rules: Sequence[Fault]) -> Iterator[tuple[Served, Callable[[], int]]]:
    """A Hub in a process of its own, which a fault may kill, and what waits for its end and gives its exit status."""
    keeper = _keeper()
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    print(json.dumps([str(folder), [vars(rule) for rule in rules]]), file=keeper.stdin, flush=True)
    url, pid = keeper.stdout.readline().split()
    ended = functools.cache(lambda read=keeper.stdout.readline: int(read()))
    try:
        yield Served(url, folder), ended
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
        raise
    finally:
        ended()


def _serve(folder: str, rules: Sequence[dict[str, Any]]) -> None:
    with serving(Path(folder), hooks=Faults([Fault(**rule) for rule in rules])) as served:
        print(served.url, os.getpid(), flush=True)
        signal.pause()


if __name__ == "__main__":
    for asked in sys.stdin:
        if not (copy := os.fork()):
            _serve(*json.loads(asked))
        print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)
