"""Failures on demand, for tests of clients and of this server: lost replies, cut connections, a full disk, kill -9.

A server with faults listens on loopback only (see `running`).
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Effect = Literal["status", "delay", "cut", "cut_after", "lose_reply", "disk_full", "kill"]
POINTS = (
    "request",
    "object-write",
    "object-rename",
    "object-renamed",
    "transaction-begin",
    "transaction-commit",
    "transaction-committed",
    "reply",
)
"""Where something can go wrong, in the order of a request: as it arrives; before an object's bytes are on disk, with
them on disk under another name, with the object in place; before a transaction, before it is final, after it; and
before the reply leaves."""

_WRITING = ("object-write", "object-rename", "transaction-begin", "transaction-commit")

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
        point: of `POINTS`, for `"kill"`; for `"disk_full"` one where something is written. The other effects happen at
            the request.
        nth: the how many-th match alone, from 1; each one if `None`.
        probability: with which a match fails.
        status: of `"status"`.
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
    seconds: float = 0.0
    bytes: int = 0

    def __post_init__(self) -> None:
        if self.effect not in get_args(Effect):
            raise ValueError(f"effect must be one of {', '.join(get_args(Effect))}, got {self.effect!r}; pick one.")
        if self.point not in POINTS:
            raise ValueError(f"point must be one of {', '.join(POINTS)}, got {self.point!r}; pick one.")
        if self.effect == "disk_full" and self.point not in _WRITING:
            raise ValueError(f"a disk is full at one of {', '.join(_WRITING)}, got point={self.point!r}; pick one.")
        if self.effect not in ("disk_full", "kill") and self.point != "request":
            raise ValueError(f"{self.effect} happens at the request alone, got point={self.point!r}; leave it out.")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be from 0 to 1, got {self.probability}; change it.")


class Faults:
    """The failures of one server.

    Args:
        rules: looked through in order; the first that applies happens, delays beside others.
        seed: of the draws of probabilities. With requests one after another, the same seed fails the same ones.
    """

    def __init__(self, rules: Sequence[Fault] = (), seed: int = 0) -> None:
        self.rules = list(rules)
        self.seed = seed
        self._random = random.Random(seed)
        self._matches: dict[int, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Faults:
        """Of `{"seed": 0, "rules": [{"effect": "status", ...}, ...]}`."""
        return cls([Fault(**rule) for rule in value.get("rules", [])], value.get("seed", 0))

    def to_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "rules": [vars(rule) for rule in self.rules]}

    def reach(self, point: str) -> None:
        """What happens at a point within the server.

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
            await JSONResponse({"error": "a failure on demand."}, rule.status)(scope, receive, send)
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
    """Closes the connection under uvicorn, as a failing network does: ASGI itself has no word for it."""
    cycle: Any = getattr(send, "__self__", None)
    if cycle is None:
        raise ConnectionError(
            "only a server of this package can cut a connection, got another one; run it by serving()."
        )
    cycle.transport.abort()
    while not cycle.disconnected:
        await asyncio.sleep(0.001)
