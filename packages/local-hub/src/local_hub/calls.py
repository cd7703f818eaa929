"""One request: its caller, its repository, the caller's rights, and its body."""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from local_hub.auth import Caller, Signer, caller_of
from local_hub.database import Database
from local_hub.errors import HubError, bad_request, no_repo
from local_hub.hooks import Hooks
from local_hub.limits import Limits
from local_hub.objects import Objects, Received, is_disk_full
from local_hub.plain import parse_json

logger = logging.getLogger(__name__)

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
PREFIXES = {"model": "", "dataset": "datasets/", "space": "spaces/"}


class Hub:
    """The state that all requests to a server share.

    Args:
        folder: holds all data.
        hooks: called during each request.
        limits: of accepted data.
    """

    def __init__(self, folder: Path, hooks: Hooks, limits: Limits) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.hooks = hooks
        self.limits = limits
        self.objects = Objects(folder, hooks)
        self.database = Database(folder / "hub.sqlite", hooks)
        self.signer = Signer(self.database)


@dataclass(frozen=True)
class Repo:
    """A row of the table of repositories."""

    key: int
    kind: str
    namespace: str
    name: str
    private: bool
    sdk: str | None
    created: str

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def url_path(self) -> str:
        return PREFIXES[self.kind] + self.id


@dataclass
class Call:
    """One request.

    Args:
        hub: that answers.
        request: as received.
        caller: that sent it.
        body: of the request, unless `received` has it.
        received: the file with the body, for endpoints that accept a large one.
    """

    hub: Hub
    request: Request
    caller: Caller
    body: bytes = b""
    received: Received | None = None

    @property
    def database(self) -> Database:
        return self.hub.database

    @property
    def base(self) -> str:
        """The address of this server in the request."""
        return f"{self.request.url.scheme}://{self.request.url.netloc}"

    @property
    def kind(self) -> str:
        """The kind of the path's repository: `/api/datasets/…` or `/datasets/…`; models have no prefix."""
        _, first, second, *_ = [*self.request.url.path.split("/"), ""]
        if first == "api" and second not in KINDS:
            raise HubError(501, f"this Hub has {', '.join(KINDS)}, got {second[:50]!r}; pick one.")
        return KINDS.get(second if first == "api" else first, "model")

    def param(self, name: str) -> str:
        """Returns a decoded part of the path."""
        return urllib.parse.unquote(self.request.path_params[name], errors="strict")

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def flag(self, name: str) -> bool:
        return self.query(name).lower() in ("1", "true")

    def number(self, name: str, default: int, most: int) -> int:
        """Returns a number of the query, from 0 to `most`."""
        text = self.query(name) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise bad_request(f"{name} must be a number, got {text[:50]!r}; correct it.")
        return min(int(text), most)

    def json(self) -> dict[str, Any]:
        """Returns the body, a JSON object.

        Raises:
            HubError: 400.
        """
        try:
            value = parse_json(self.body.decode() or "{}")
        except ValueError as error:
            raise bad_request(f"the body must be a JSON object: {error}") from None
        if not isinstance(value, dict):
            raise bad_request(f"the body must be a JSON object, got {type(value).__name__}; send an object.")
        return value

    def text(self, values: dict[str, Any], name: str, default: str | None = None, most: int = 65_536) -> str:
        """Returns a text of a JSON object.

        Raises:
            HubError: 400.
        """
        value = values.get(name, default)
        if not isinstance(value, str) or len(value) > most:
            raise bad_request(
                f"{name} must be a text of at most {most} characters, got {str(value)[:50]!r}; send one."
            )
        return value

    # Repositories

    def repo(self, right: str = "read") -> Repo:
        """Returns the repository of the path, if the caller has the right.

        Raises:
            HubError: 401 or 404 `RepoNotFound`, it is missing or the caller may not read it; 401 or 403, the caller
                may read but not change it.
        """
        return self.find_repo(self.kind, self.param("namespace"), self.param("name"), right)

    def find_repo(self, kind: str, namespace: str, name: str, right: str = "read") -> Repo:
        row = repo_row(self.database, kind, namespace, name)
        if row is None or not self.may_read(row):
            raise no_repo(404 if self.caller.known else 401)
        repo = as_repo(row)
        if right != "read":
            self.demand(right, repo.namespace, repo.name)
        return repo

    def may_read(self, row: Any) -> bool:
        return not row["private"] or self.caller.may("read", row["namespace"], row["name"])

    def demand_token(self) -> None:
        """Raises `HubError` 401 for a caller without a token."""
        if not self.caller.known:
            raise HubError(401, "this needs a token, got none; pass one.")

    def demand(self, right: str, namespace: str, name: str) -> None:
        """Raises `HubError` for a caller without this right: 401 without a token, 403 with one."""
        self.demand_token()
        if not self.caller.may(right, namespace, name):
            raise HubError(
                403, f"this needs a token with the right to {right} {namespace}/{name}, got one without; pass another."
            )

    def demand_proposer(self) -> None:
        """Raises `HubError` for a caller who may write nowhere, and so may not comment or open a pull request: 401
        without a token, 403 with one."""
        self.demand_token()
        if self.caller.role not in ("write", "admin"):
            raise HubError(
                403, "this needs a token with the right to write, got one that may only read; pass another."
            )


def repo_row(database: Database, kind: str, namespace: str, name: str) -> Any:
    """Returns the row of a repository, if it exists."""
    return database.one("SELECT * FROM repos WHERE kind = ? AND namespace = ? AND name = ?", kind, namespace, name)


def as_repo(row: Any) -> Repo:
    return Repo(
        row["id"], row["kind"], row["namespace"], row["name"], bool(row["private"]), row["sdk"], row["created"]
    )


Handler = Callable[[Call], Response]
Admit = Callable[[Call], int]
"""Refuses a caller before the body is read, or returns the most bytes of the body."""

_ANONYMOUS_BYTES = 2**20
_PAGE = 1000


def admit_anyone(call: Call) -> int:
    """Admits every caller, with a body that fits in memory."""
    most = call.hub.limits.body_bytes
    return most if call.caller.known else min(most, _ANONYMOUS_BYTES)


def admit_reader(call: Call) -> int:
    """Admits a caller who may read the repository."""
    call.repo()
    return admit_anyone(call)


def admit_writer(call: Call) -> int:
    """Admits a caller who may change the repository."""
    call.repo("write")
    return admit_anyone(call)


def admit_proposer(call: Call) -> int:
    """Admits a caller who may write somewhere, and may read the path's repository, if any."""
    if "namespace" in call.request.path_params:
        call.repo()
    call.demand_proposer()
    return admit_anyone(call)


def endpoint(
    handler: Handler, admit: Admit | None = None, into_file: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Wraps a handler for Starlette: reads the body, runs the handler in a thread, and answers its refusals.

    Args:
        handler: a blocking function.
        admit: see `Admit`; `None` reads no body.
        into_file: whether to receive the body into a file.
    """

    async def answer(request: Request) -> Response:
        hub: Hub = request.app.state.hub
        received = None
        try:
            caller = await run_in_threadpool(caller_of, hub.database, request)
            call = Call(hub, request, caller)
            if admit is not None:
                most = await run_in_threadpool(admit, call)
                if into_file:
                    call.received = received = await hub.objects.receive(_limited(request, most))
                else:
                    call.body = b"".join([chunk async for chunk in _limited(request, most)])
            return await run_in_threadpool(handler, call)
        except HubError as error:
            return error.response()
        except ClientDisconnect:
            return Response(status_code=400)
        except UnicodeDecodeError:
            return bad_request("a path must be UTF-8, got other bytes; encode it so.").response()
        except Exception as error:
            if is_disk_full(error):
                return HubError(507, "the disk of this Hub is full; free some space and try again.").response()
            logger.exception("%s %s failed", request.method, request.url.path)
            return HubError(500, f"this Hub failed with {type(error).__name__}; read its log.").response()
        finally:
            if received is not None:
                hub.objects.discard(received)

    return answer


async def _limited(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yields the body, up to its limit."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise HubError(413, f"a body must have at most {most} bytes, got more; send less.")
        yield chunk


def answer_page(call: Call, items: list[Any]) -> Response:
    """Returns a page of a list, with a link to the next page.

    Args:
        call: its query has `limit`, at most `_PAGE`, and `cursor`, the number of items before the page.
        items: of all pages.
    """
    size = max(1, call.number("limit", _PAGE, _PAGE))
    start = call.number("cursor", 0, 10**9)
    headers = {}
    if start + size < len(items):
        following = call.request.url.include_query_params(cursor=start + size)
        headers["Link"] = f'<{following}>; rel="next"'
    return JSONResponse(items[start : start + size], headers=headers)
