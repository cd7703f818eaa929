"""Hooks between a request and the disk, by which tests make both fail."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

POINTS = (
    "object-write",
    "object-rename",
    "object-renamed",
    "transaction-begin",
    "transaction-commit",
    "transaction-committed",
)
"""In the order of a request: before an object's bytes are on disk, with them on disk under another name, with the
object in place; before a transaction, before its commit, and after it."""


class Hooks:
    """Hooks that do nothing."""

    def reach(self, point: str) -> None:
        """Called at each of `POINTS`, in the thread of the request. An OSError counts as an error of the disk."""

    async def wrap(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request with `app`."""
        await app(scope, receive, send)
