"""The application of the Hub: the handler of each request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from local_hub import calls, cards, commits, discussions, files, lfs, repos, spaces
from local_hub.errors import HubError
from local_hub.hooks import Hooks
from local_hub.limits import Limits
from local_hub.upkeep import sweep

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 3600.0
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_REF_IN_FULL = re.compile(rb"/refs/pr/([A-Za-z0-9._-]+)(?=/|$)")
_NOT_SUPPORTED = {
    r"xet-(read|write)-token": "this Hub has no Xet storage; set HF_HUB_DISABLE_XET=1 before the client starts.",
    r"\.git/(info/refs|git-(upload|receive)-pack|HEAD)": "this Hub does not speak git; use the hf command.",
    r"^/api/(buckets|jobs|scheduled-jobs|webhooks|settings/webhooks)|^/oauth": (
        "this Hub only stores repositories; use huggingface.co for this service."
    ),
}


class HubApp(Starlette):
    """Starlette, with paths split before they are decoded: `refs%2Fpr%2F1` is one part."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy in between may use the other of the two, and read the rest as another request.
            message = "a body must have one length, got Content-Length and Transfer-Encoding; send one of them."
            await HubError(400, message, headers={"Connection": "close"}).response()(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        raw = _REF_IN_FULL.sub(rb"/refs%2Fpr%2F\1", raw.partition(b"?")[0])
        scope = {**scope, "path": raw.decode("ascii", "replace")}
        await self.state.hub.hooks.wrap(super().__call__, scope, receive, send)


def make_app(folder: Path, *, hooks: Hooks | None = None, limits: Limits | None = None) -> Starlette:
    """Returns the Hub of a folder, for any ASGI server; `serving` runs it.

    Args:
        folder: holds all data; created if missing. One process at a time may serve it.
        hooks: called during each request, `Hooks()` by default.
        limits: of accepted data, `Limits()` by default.
    """
    hub = calls.Hub(Path(folder), hooks or Hooks(), limits or Limits())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with contextlib.closing(hub.database):
            await run_in_threadpool(sweep, hub)
            sweeping = asyncio.create_task(_sweep_now_and_then(hub))
            yield
            sweeping.cancel()

    app = HubApp(routes=_routes(), lifespan=lifespan)
    app.state.hub = hub
    return app


async def _sweep_now_and_then(hub: calls.Hub) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        try:
            await run_in_threadpool(sweep, hub)
        except Exception:
            logger.exception("sweeping failed; the next attempt is in an hour")


def _routes() -> list[Route]:
    api = "/api/{kinds}"
    repo = api + "/{namespace}/{name}"
    found = [
        _route("GET", "/", _welcome),
        _route("GET", "/api/whoami-v2", repos.whoami),
        _route("POST", "/api/validate-yaml", cards.validate, calls.admit_anyone),
        _route("POST", "/api/repos/create", repos.create, calls.admit_proposer),
        _route("DELETE", "/api/repos/delete", repos.delete, calls.admit_proposer),
        _route("GET", api, repos.list_all),
        _route("GET", api + "/{name}", repos.missing),
        _route("GET", api + "/{name}/revision/{revision}", repos.missing),
        _route("GET", repo, repos.info),
        _route("GET", repo + "/revision/{revision}", repos.info),
        _route("GET", repo + "/tree/{revision}", files.tree),
        _route("GET", repo + "/tree/{revision}/{path:path}", files.tree),
        _route("POST", repo + "/paths-info/{revision}", files.paths_info, calls.admit_reader),
        _route("GET", repo + "/commits/{revision}", files.commits),
        _route("GET", repo + "/refs", repos.refs),
        _route("POST", repo + "/branch/{ref}", repos.create_branch, calls.admit_writer),
        _route("DELETE", repo + "/branch/{ref}", repos.delete_branch),
        _route("POST", repo + "/tag/{ref}", repos.create_tag, calls.admit_writer),
        _route("DELETE", repo + "/tag/{ref}", repos.delete_tag),
        _route("PUT", repo + "/settings", repos.settings, calls.admit_writer),
        _route("POST", repo + "/preupload/{revision}", commits.preupload, commits.admit_preupload),
        _route("POST", repo + "/commit/{revision}", commits.commit, commits.admit, into_file=True),
        _route("GET", repo + "/discussions", discussions.list_all),
        _route("POST", repo + "/discussions", discussions.create, calls.admit_proposer),
        _route("GET", repo + "/discussions/{num}", discussions.details),
        _route("POST", repo + "/discussions/{num}/comment", discussions.comment, calls.admit_proposer),
        _route("POST", repo + "/discussions/{num}/status", discussions.set_status, calls.admit_proposer),
        _route("POST", repo + "/discussions/{num}/merge", discussions.merge, calls.admit_writer),
        _route("GET", repo + "/runtime", spaces.runtime),
    ]
    for setting in ("variables", "secrets"):
        found += [
            _route("GET", f"{repo}/{setting}", spaces.get_settings),
            _route("POST", f"{repo}/{setting}", spaces.set_setting, calls.admit_writer),
            _route("DELETE", f"{repo}/{setting}", spaces.delete_setting, calls.admit_writer),
        ]
    found.append(_route("PUT", "/lfs/{repo}/{sha256}/{size}", lfs.put, lfs.admit, into_file=True))
    for prefix in ("/datasets", "/spaces", ""):
        place = prefix + "/{namespace}/{name}"
        found += [
            _route("GET", place + "/resolve/{revision}/{path:path}", files.resolve),
            # A pull request may have large files too.
            _route("POST", place + ".git/info/lfs/objects/batch", lfs.batch, calls.admit_proposer),
        ]
    return [*found, Route("/{path:path}", _unknown, methods=[*_METHODS])]


def _route(
    method: str, path: str, handler: calls.Handler, admit: calls.Admit | None = None, into_file: bool = False
) -> Route:
    return Route(path, calls.endpoint(handler, admit, into_file), methods=[method])


def _welcome(call: calls.Call) -> Response:
    return PlainTextResponse(f"A Hub for HF_ENDPOINT={call.base}; set HF_HUB_DISABLE_XET=1, too.\n")


async def _unknown(request: Request) -> Response:
    """Answers requests that this Hub does not support: 501 with a reason, or 404 for other paths."""
    path = request.url.path
    for pattern, message in _NOT_SUPPORTED.items():
        if re.search(pattern, path):
            return HubError(501, message).response()
    if path.startswith("/api/"):
        message = f"this Hub does not answer {request.method} {path[:300]}; use huggingface.co for it."
        return HubError(501, message).response()
    return HubError(404, "there is no such page; this Hub has files and no pages.").response()
