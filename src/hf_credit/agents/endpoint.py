"""The server that programs call, on loopback, with a key for each run."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypedDict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from hf_credit.agents.calls import WITHOUT_EFFECT, RefusedCallError, canonical_call, refuse
from hf_credit.boundary import Worth, encodable, read
from hf_credit.extras import how_to_install
from hf_credit.safe_io import parse_json

logger = logging.getLogger(__name__)

_MOST_BYTES = 64 * 2**20  # of a call: more than any context
_CHAT = "/chat/completions"
_CREATED = 0  # seconds since 1970: a reply has no time, or no run would repeat
_RANDOM_ID = re.compile(r"([a-z]+)_(?:chatcmpl-)?[0-9a-f]{24,}")
_NO_RUN = "a call needs the key of a live run"
_IDS = ("id", "item_id", "call_id", "response_id")
_SILENT_SECONDS = 10  # that a connection may wait before and between its requests


class _Reward(TypedDict):
    value: Worth | bool


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is refused where half of the files that a process may open are connections, and is closed if
    it stays silent: else any process of the machine could stop a training."""

    most = max(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(_SILENT_SECONDS, self.timeout_keep_alive_handler)


@dataclass(eq=False)
class Call:
    """A call that waits for its reply.

    Attributes:
        asked: the call, from `canonical_call`.
        retry: whether its SDK marks it as a retry.
        ignored: the number of its parameters without effect.
    """

    asked: dict[str, Any]
    retry: bool = False
    ignored: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, repr=False)
    _reply: asyncio.Future[tuple[dict[str, Any], str] | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._reply = self._loop.create_future()

    def answer(self, message: dict[str, Any], finish: str, place: str) -> None:
        """Replies; safe in any thread, and without effect if the call has a reply or its caller has ended.

        Args:
            message: of the assistant, in the form of chat completions.
            finish: the reason of its end: `"stop"`, `"length"` or `"tool_calls"`.
            place: in the run, for ids.
        """
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        reply = {
            "id": f"chatcmpl-{place}",
            "object": "chat.completion",
            "created": _CREATED,
            "model": self.asked["model"],
            "choices": [encodable(choice)],
            "usage": usage,
        }
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._set, (reply, place))

    def drop(self) -> None:
        """Ends the wait without a reply; safe in any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set, None)

    async def reply(self) -> tuple[dict[str, Any], str] | None:
        """Returns the reply as a chat completion, and its place in the run; `None` if the run ends without."""
        return await self._reply

    def _set(self, reply: tuple[dict[str, Any], str] | None) -> None:
        if not self._reply.done():
            self._reply.set_result(reply)


OnEvent = Callable[[str, Any], None]
"""Receives the events of a run: `"call"` with a `Call`, `"refused"` with a sentence, `"reward"` with a number."""


class Endpoint:
    """A server on loopback that answers chat completions, responses and messages, streamed or not.

    Args:
        roles: the names of models that programs may call; empty for any.
    """

    def __init__(self, roles: tuple[str, ...] = ()) -> None:
        self._roles = roles
        self._runs: dict[str, tuple[OnEvent, set[Call]]] = {}  # with waiting calls
        self._rewarded: dict[str, OnEvent] = {}
        # The explicit protocol lets asyncio set TCP_NODELAY, which saves 40 ms a call.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        self.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        routes = [
            Route("/v1/reward", self._paid, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/{path:path}", self._called, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            http=_Connection,
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
            call.drop()

    def shut(self) -> None:
        """Stops the server."""
        self._finalizer()

    async def _paid(self, request: Request) -> Response:
        on_event = self._rewarded.get(_key(request))
        if on_event is None:
            return _refusal(401, "a reward needs the reward key of a live run")
        try:
            paid: _Reward = read(_Reward, await _body(request), "the body of a reward")
        except ValueError as error:
            return _refused(on_event, str(error))
        on_event("reward", float(paid["value"]))
        return JSONResponse({})

    async def _models(self, request: Request) -> Response:
        if _key(request) not in self._runs:
            return _refusal(401, _NO_RUN)
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self._roles]})

    async def _called(self, request: Request) -> Response:
        key = _key(request)
        if key not in self._runs:
            return _refusal(401, _NO_RUN)
        on_event, waiting = self._runs[key]
        try:
            body = await _body(request)
            refuse(body)
            dialect = _dialect(request.url.path, dict(request.headers), body)
            asked = canonical_call(dialect.request(body))
            if self._roles and asked["model"] not in self._roles:
                raise RefusedCallError(
                    f"the model of a call must be one of the roles {', '.join(self._roles)}, got {asked['model']!r}; "
                    "declare it with roles=, or call one of these."
                )
        except ValueError as error:
            return _refused(on_event, str(error))
        retry = request.headers.get("x-stainless-retry-count", "0") != "0"
        call = Call(asked, retry, sum(name in body for name in WITHOUT_EFFECT))
        waiting.add(call)
        if key not in self._runs:  # the run has ended meanwhile
            call.drop()
        on_event("call", call)
        try:
            reply = await call.reply()
        finally:
            waiting.discard(call)
        if reply is None:
            return _refusal(401, _NO_RUN)
        try:
            return await dialect.response(reply[0], body, reply[1])
        except Exception as error:  # ours, so that it is no failure of the policy
            logger.exception("The endpoint of programs failed.")
            on_event("refused", f"a reply must have the form of the call's API, got {type(error).__name__}: {error}")
            return _refusal(500, "the reply could not be written")


class _ChatCompletions:
    """The dialect of the replies themselves."""

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def response(self, reply: dict[str, Any], body: dict[str, Any], place: str) -> Response:
        if not body.get("stream"):
            return JSONResponse(reply)
        (choice,) = reply["choices"]
        calls = [{"index": number, **call} for number, call in enumerate(choice["message"].get("tool_calls") or [])]
        delta = {**choice["message"], **({"tool_calls": calls} if calls else {})}
        chunk = {
            **reply,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}],
        }
        return Response(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")


class _Translated:
    """Another dialect, translated by OpenEnv."""

    def __init__(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        try:
            from openenv.core.harness.capture import sse
            from openenv.core.harness.capture.detection import APIType, detect
            from openenv.core.harness.capture.dialects import TransformManager
        except ImportError as error:
            raise RefusedCallError(
                f"a call other than chat completions needs the package openenv, got {error}; run "
                f"{how_to_install('agents')}, or call chat completions."
            ) from None
        self._kind, self._replay = detect(path, headers, body), sse.replay
        known = {APIType.OPENAI_RESPONSES: "/responses", APIType.ANTHROPIC: "/messages"}
        if self._kind not in known or not path.endswith(known[self._kind]):
            raise RefusedCallError(
                f"a call must be one of chat completions, responses or messages, got {path[:100]!r}; call one."
            )
        self._transformer = TransformManager().get(self._kind)

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._transformer.transform_request(body))
        except Exception as error:  # a malformed body may raise anything
            raise RefusedCallError(f"a call must follow its API, got {str(error)[:200]}; correct it.") from None

    async def response(self, reply: dict[str, Any], body: dict[str, Any], place: str) -> Response:
        ids: dict[str, str] = {}
        if not body.get("stream"):
            made = self._transformer.transform_response(reply, body)
            return JSONResponse(_settled(made, place, ids))
        text = "".join([part async for part in self._replay(self._kind, self._transformer, reply, body)])
        lines = [
            f"data: {json.dumps(_settled(json.loads(line[6:]), place, ids))}" if line.startswith("data: {") else line
            for line in text.split("\n")
        ]
        return Response("\n".join(lines), media_type="text/event-stream")


def _dialect(path: str, headers: dict[str, str], body: dict[str, Any]) -> _ChatCompletions | _Translated:
    # Chat completions need no translation; OpenEnv takes seconds to import.
    return _ChatCompletions() if path.endswith(_CHAT) else _Translated(path, headers, body)


def _settled(value: Any, place: str, ids: dict[str, str]) -> Any:
    """Returns a reply without random ids and times: some programs write ids into their prompts."""
    if isinstance(value, list):
        return [_settled(one, place, ids) for one in value]
    if not isinstance(value, dict):
        return value
    settled: dict[str, Any] = {}
    for key, one in value.items():
        if key in _IDS and isinstance(one, str) and (random := _RANDOM_ID.fullmatch(one)):
            settled[key] = ids.setdefault(one, f"{random[1]}_{place}_{len(ids)}")
        else:
            settled[key] = _CREATED if key == "created_at" else _settled(one, place, ids)
    return settled


async def _body(request: Request) -> Any:
    """Returns the body of a request as plain values, with U+FFFD for halves of surrogate pairs."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        raise RefusedCallError("a call must have one length, got Content-Length and Transfer-Encoding; send one.")
    parts, left = [], _MOST_BYTES
    async for part in request.stream():
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise RefusedCallError(f"a call must have at most {_MOST_BYTES} bytes, got more; shorten it.")
    body = parse_json(b"".join(parts).decode("utf-8"), broken_text=True, finite=True)
    if not isinstance(body, dict):
        raise RefusedCallError("a call must be a JSON object, got something else; send one.")
    return encodable(body)


def _refused(on_event: OnEvent, sentence: str) -> Response:
    """Refuses a call or a reward, and tells the run. The connection ends: its body may not have been read."""
    on_event("refused", sentence)
    response = _refusal(400, sentence)
    response.headers["Connection"] = "close"
    return response


def _key(request: Request) -> str:
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")


def _refusal(status: int, sentence: str) -> Response:
    """Returns an error in the form of both OpenAI's and Anthropic's SDKs."""
    error: Mapping[str, Any] = {"type": "invalid_request_error", "message": sentence, "param": None, "code": None}
    return JSONResponse({"type": "error", "error": error}, status)


def _stopped(owner: int, server: uvicorn.Server, thread: threading.Thread, listener: socket.socket) -> None:
    if owner != os.getpid():
        return
    server.should_exit = server.force_exit = True  # no answer will come for waiting calls
    thread.join(5)
    listener.close()
