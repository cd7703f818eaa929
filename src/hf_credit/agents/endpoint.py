"""The server that programs call, on loopback, with a key for each run."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import resource
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from hf_credit.agents.calls import canonical_call, estimated_tokens, shown_message, written
from hf_credit.agents.dialects import CREATED, DIALECTS, Dialect, completion, dialect_of, read_call
from hf_credit.agents.program import DEFAULT_ROLE
from hf_credit.agents.states import Images
from hf_credit.agents.white_lists import RefusedCallError
from hf_credit.boundary import Worth, encodable, read
from hf_credit.pictures import apart
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.failures import in_one_line
from hf_credit.safe_io import parse_json

logger = logging.getLogger(__name__)

_MOST_BYTES = 64 * 2**20  # of a call: more than any context, with its images
_IMAGE_BYTES = 2**15  # of a call that may have an image, which takes longer to read
_NO_KEY = RefusedCallError("a call needs the key of a live run", status=401, code="invalid_api_key")
_AT_ONCE = 128  # connections that are accepted before the next ones are counted
_SILENT_SECONDS = 10  # that a connection may wait before and between its requests


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed if it stays silent, or if half of the files that a process may open are silent
    connections and it has been so for longest: else any process of the machine could stop a training."""

    most = max(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    silent_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.silent_since = time.monotonic()
        self.timeout_keep_alive_task = self.loop.call_later(_SILENT_SECONDS, self.timeout_keep_alive_handler)
        silent = [one for one in self.connections if one.silent_since is not None]
        if len(silent) > self.most:
            oldest = min(silent, key=lambda one: one.silent_since)
            oldest.silent_since = None
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.silent_since = None
        super().data_received(data)


@dataclass(eq=False)
class Call:
    """A call that waits for its reply.

    Attributes:
        asked: the call, from `canonical_call`.
        retry: whether its SDK marks it as a retry.
        ignored: the number of its parameters without effect.
        images: those of the call, once they are apart (`hf_credit.pictures.naming`).
        reply: the arguments of `answer`, once they are known.
        gone: returns whether its program no longer waits.
    """

    asked: dict[str, Any]
    retry: bool = False
    ignored: int = 0
    images: Images = ()
    reply: Future[tuple[Mapping[str, Any] | None, str]] = field(default_factory=Future, repr=False)
    gone: Callable[[], bool] = bool

    def answer(self, record: Mapping[str, Any] | None, place: str = "") -> None:
        """Replies; safe in any thread, and without effect if the call has a reply or its caller has ended.

        Args:
            record: of the reply, as in `hf_credit.agents.states.AnsweredCall`; `None` if the run ends without.
            place: of the reply in the run, for ids.
        """
        with suppress(InvalidStateError):
            self.reply.set_result((record, place))


OnEvent = Callable[[str, Any], None]
"""Receives the events of a run: `"call"` with a `Call`; `"reward"` with a number; with a sentence, `"refused"` for a
call, after which the program may go on, and `"failed"`, after which the run has no outcome."""


class Endpoint:
    """A server on loopback that answers calls in all of `DIALECTS`, streamed or not.

    Args:
        roles: the names of models that programs may call; empty for any.
    """

    def __init__(self, roles: tuple[str, ...] = ()) -> None:
        self._roles = roles
        self._runs: dict[str, tuple[OnEvent, set[Call]]] = {}  # with waiting calls
        self._rewarded: dict[str, OnEvent] = {}
        self._chat: tuple[Any, int | None] = (None, None)
        self._counting: tuple[Any, Any] = (None, None)  # a chat, and its copy for this thread
        # The explicit protocol lets asyncio set TCP_NODELAY, which saves 40 ms a call.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        self.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        routes = [
            Route("/v1/reward", self._paid, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._models),
            Route("/{path:path}", self._called, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            http=_Connection,
            backlog=_AT_ONCE,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="hf-credit-endpoint", daemon=True
        )
        self._thread.start()
        while not self._server.started:
            time.sleep(0.002)
        self._finalizer = weakref.finalize(self, _stopped, os.getpid(), self._server, self._thread, listener)

    def open(self, on_event: OnEvent) -> tuple[str, str]:
        """Returns two keys for a run: for its calls, and for its rewards. `close` revokes both.

        Args:
            on_event: called in the server's thread; it must not block.
        """
        key, reward_key = (secrets.token_urlsafe(24) for _ in range(2))
        self._runs[key], self._rewarded[reward_key] = (on_event, set()), on_event
        return key, reward_key

    def close(self, keys: tuple[str, str]) -> None:
        """Revokes the keys of a run, and refuses its waiting calls."""
        _, waiting = self._runs.pop(keys[0], (None, set()))
        self._rewarded.pop(keys[1], None)
        for call in tuple(waiting):
            call.answer(None)

    def shut(self) -> None:
        """Stops the server."""
        self._finalizer()

    def count_with(self, chat: Chat, most: int | None) -> None:
        """Sets what counts tokens, and the most tokens of a context, which models show."""
        self._chat = chat, most

    async def _paid(self, request: Request) -> Response:
        on_event = self._rewarded.get(DIALECTS[0].key(request.headers))
        if on_event is None:
            return _refusal(DIALECTS[0], RefusedCallError("a reward needs the reward key of a live run", None, 401))
        try:
            value = read(Worth | bool, (await _body(request)).get("value"), "the value of a reward")
        except ValueError as error:
            on_event("failed", str(error))
            return _refusal(DIALECTS[0], error)
        on_event("reward", float(value))
        return JSONResponse({})

    async def _models(self, request: Request) -> Response:
        dialect = dialect_of(request.url.path, request.headers)
        if dialect.key(request.headers) not in self._runs:
            return _refusal(dialect, _NO_KEY)
        about = {
            "object": "model",
            "type": "model",
            "created": CREATED,
            "created_at": "1970-01-01T00:00:00Z",
            "owned_by": "hf-credit",
            "max_model_len": self._chat[1],
        }
        known = {name: {"id": name, "display_name": name, **about} for name in self._roles or (DEFAULT_ROLE,)}
        name = request.path_params.get("name")
        if name is not None:
            return JSONResponse(known[name]) if name in known else _refusal(dialect, _no_model(name, known))
        ends = dict(zip(("first_id", "last_id"), (*known, *known)[:: len(known)], strict=False))
        return JSONResponse({"object": "list", "data": [*known.values()], "has_more": False, **ends})

    async def _called(self, request: Request) -> Response:
        path = request.url.path
        dialect = dialect_of(path, request.headers)
        key = dialect.key(request.headers)
        if key not in self._runs:
            return _refusal(dialect, _NO_KEY)
        on_event, waiting = self._runs[key]
        try:
            if request.method != "POST" or not dialect.reads(path):
                *names, last = (one.name for one in DIALECTS)
                sentence = f"a call must be one of {', '.join(names)} or {last}, got {request.method} {path[:100]!r}"
                raise RefusedCallError(f"{sentence}; call one.", status=404)
            body = await _body(request)
            form, ignored = read_call(dialect, body, path)
            # Elsewhere, if it may have images, so that other programs are answered meanwhile.
            large = int(request.headers.get("content-length", _IMAGE_BYTES)) >= _IMAGE_BYTES
            asked = await asyncio.to_thread(canonical_call, form) if large else canonical_call(form)
            if self._roles and asked["model"] not in self._roles:
                raise _no_model(asked["model"], self._roles)
            if dialect.counting and path.endswith(dialect.counting):
                return JSONResponse({"input_tokens": self._count(asked)})
        except ValueError as error:
            on_event("refused", str(error))
            return _refusal(dialect, error)
        call = Call(asked, request.headers.get("x-stainless-retry-count", "0") != "0", ignored)
        waiting.add(call)
        if key not in self._runs:  # the run has ended meanwhile
            call.answer(None)
        on_event("call", call)
        lost = asyncio.ensure_future(request.receive())  # after the whole body, it is the end of the connection
        call.gone = lost.done
        try:
            record, place = await asyncio.wrap_future(call.reply)
        finally:
            lost.cancel()
            waiting.discard(call)
        if record is None:
            return _refusal(dialect, _NO_KEY)
        if "too_long" in record:
            return _refusal(dialect, dialect.too_long(*record["too_long"]))
        try:
            said = dialect.reply(completion(record, place, asked["model"]), body)
            if body.get("stream"):
                return Response(dialect.stream(said, body), media_type="text/event-stream")
            return JSONResponse(said)
        except Exception as error:  # ours, so that it is no failure of the policy
            logger.exception("The endpoint of programs failed.")
            on_event("failed", f"a reply must have the form of the call's API, got {type(error).__name__}: {error}")
            return _refusal(dialect, RefusedCallError("the reply could not be written", status=500))

    def _count(self, asked: Mapping[str, Any]) -> int:
        """Returns the number of tokens of a call's context."""
        messages = [shown_message(message) for message in asked["messages"]]
        chat, _ = self._chat
        if chat is None:
            return estimated_tokens(apart(written(messages))[0])
        if self._counting[0] is not chat:  # tokenizers are for one thread at a time
            self._counting = chat, Chat(copy.deepcopy(chat.tokenizer), chat.template_kwargs)
        try:
            return len(self._counting[1].context(messages, tools=asked["tools"]))
        except Exception as error:  # the template may raise anything
            raise RefusedCallError(
                f"messages of a call must fit the chat template, got {in_one_line(error)}"
            ) from None


async def _body(request: Request) -> Any:
    """Returns the body of a request as plain values, with U+FFFD for halves of surrogate pairs."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        raise RefusedCallError("a call must have one length, got Content-Length and Transfer-Encoding; send one.")
    parts, left = [], _MOST_BYTES
    async for part in request.stream():
        left -= len(part)
        if left >= 0:
            parts.append(part)
        elif left < -4 * _MOST_BYTES:  # until then it is read, as a client that still sends would miss the error
            break
    if left < 0:
        raise RefusedCallError(f"a call must have at most {_MOST_BYTES} bytes, got more; shorten it.")
    body = parse_json(b"".join(parts).decode("utf-8"), broken_text=True, finite=True)
    if not isinstance(body, dict):
        raise RefusedCallError("a call must be a JSON object, got something else; send one.")
    return encodable(body)


def _no_model(name: str, roles: Iterable[str]) -> RefusedCallError:
    return RefusedCallError(
        f"the model of a call must be one of the roles {', '.join(roles)}, got {name[:100]!r}; call one of these, or "
        "declare it with roles=.",
        param="model",
        status=404,
        code="model_not_found",
    )


def _refusal(dialect: Dialect, error: ValueError) -> Response:
    """Returns an error. A connection whose request may not have been read ends."""
    error = error if isinstance(error, RefusedCallError) else RefusedCallError(str(error))
    return JSONResponse(dialect.error(error), error.status, {"Connection": "close"})


def _stopped(owner: int, server: uvicorn.Server, thread: threading.Thread, listener: socket.socket) -> None:
    if owner != os.getpid():
        return
    server.should_exit = server.force_exit = True  # no answer will come for waiting calls
    thread.join(5)
    listener.close()
