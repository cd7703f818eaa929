"""A server of chat completions on loopback, which answers as a test says, and may misbehave."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def completion(text: str, tokens: int | None = 10, top: Mapping[str, float] | None = None) -> dict[str, Any]:
    """An answer: its text, the tokens it took, and the probabilities of the first token."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    if top is not None:
        first, *rest = text.partition("\n")
        shares = [{"token": token, "logprob": math.log(share), "bytes": None} for token, share in top.items()]
        none = [{"token": one, "logprob": 0.0, "top_logprobs": []} for one in rest if one]
        choice["logprobs"] = {"content": [{"token": first, "logprob": 0.0, "top_logprobs": shares}, *none]}
    return {"id": "1", "object": "chat.completion", "choices": [choice]} | (
        {} if tokens is None else {"usage": {"total_tokens": tokens}}
    )


class JudgeServer(ThreadingHTTPServer):
    """Answers each request with the result of `answer(body)`: an object; or a status, headers and a body, which has no
    end with a header `Endless`.

    Attributes:
        asked: the bodies of the requests so far.
        keys: their headers `Authorization`.
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        found = self.server.answer(body)
        status, headers, content = found if isinstance(found, tuple) else (200, {}, found)
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for _ in range(1_000_000 if headers.get("Endless") else 1):
                self.wfile.write(content)
        except OSError:  # the client has heard enough
            self.close_connection = True

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        """Tells nothing."""
