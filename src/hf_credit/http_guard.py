"""Checks the answers of a Hub before huggingface_hub writes or keeps any of them.

huggingface_hub and datasets name files of their caches by headers of an answer (`ETag`, `X-Linked-Etag`,
`X-Repo-Commit`) and by the commit in a description of a repository, so that an endpoint could name any file of the
user; and huggingface_hub accepts bodies and pages without end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import HfHubHTTPError

# The client library of huggingface_hub: httpx, and since its version 2 httpx2, which conflicts with vLLM.
httpx: Any = sys.modules[HfHubHTTPError.__bases__[0].__module__.partition(".")[0]]

TIMEOUT = httpx.Timeout(300, connect=30)
"""The wait for an answer in seconds; huggingface_hub waits for ever."""

MOST_BODY = 64 * 2**20
"""The most bytes of an answer of unknown size."""

MOST_ANSWERS = 1000
"""The most answers to one call of huggingface_hub: pages, redirects, and parts of an interrupted download."""

_MOST_OTHER = 2**20  # bytes of a redirect or an error
_NAME = re.compile(r"[0-9A-Za-z_.-]{1,128}")
_DESCRIPTION = re.compile(r".*/api/(models|datasets|spaces)/[^/]+(/[^/]+)?(/revision/[^/]+)?")
_DESCRIBES = "hf_credit_describes"
_WITH_XET = re.compile(r"(.+\.)?(huggingface\.co|hf\.co)")


class RefusedAnswer(OSError):
    """A refused answer, with the reason in one sentence."""


@dataclass
class _Bound:
    body: int
    answers: int = MOST_ANSWERS


_BOUND: ContextVar[_Bound | None] = ContextVar("bound", default=None)
_REACHED: set[str] = set()


def hooked(client: Any) -> Any:
    """Returns a client of huggingface_hub, with the checks."""
    if client.timeout == httpx.Timeout(None):
        client.timeout = TIMEOUT
    client.event_hooks["request"].append(_prepare)
    client.event_hooks["response"].append(_check)
    return client


@contextmanager
def bounded(body: int = MOST_BODY) -> Iterator[None]:
    """Refuses, within this context, longer bodies and more than `MOST_ANSWERS` answers.

    Args:
        body: the most bytes of an answer. Compressed answers are refused: a few bytes could become any number.
    """
    token = _BOUND.set(_Bound(body))
    try:
        yield
    finally:
        _BOUND.reset(token)


def was_reached(place: str) -> bool:
    """Returns whether a host and port has answered this process."""
    return place in _REACHED


def place_of(request: Any) -> str:
    """Returns the host and port of a request."""
    return str(request.url.netloc.decode())


def _prepare(request: Any) -> None:
    """Asks for plain bytes, and notes what a request is for, which its redirects share."""
    if request.method == "GET" and _DESCRIPTION.fullmatch(request.url.path):
        request.extensions[_DESCRIBES] = True
    if _BOUND.get() is not None:
        request.headers["Accept-Encoding"] = "identity"


def _check(response: Any) -> None:
    request, headers = response.request, response.headers
    _REACHED.add(place_of(request))
    if request.method == "HEAD":
        _check_names(response)
    bound = _BOUND.get()
    if bound is None:
        _check_commit(response)
        return
    bound.answers -= 1
    if bound.answers < 0:
        raise RefusedAnswer(f"a Hub must answer at most {MOST_ANSWERS} times to one call, got more; do not use it.")
    if headers.get("Content-Encoding", "identity") != "identity":
        raise RefusedAnswer(
            f"a Hub must answer with plain bytes, got {headers['Content-Encoding'][:50]!r}; ask whoever runs it."
        )
    most = bound.body if response.is_success else _MOST_OTHER
    for name, limit in (("Content-Length", most), ("X-Linked-Size", bound.body)):
        length = headers.get(name, "0")
        if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > limit:
            raise RefusedAnswer(f"{name} must be at most {limit}, got {length[:50]!r}; do not use this Hub.")
    response.stream = _Counted(response.stream, most)
    _check_commit(response)


def _check_names(response: Any) -> None:
    """Checks the names of files in an answer: in an error only the commit, in other answers tags too."""
    headers = response.headers
    _check_name("X-Repo-Commit", headers.get("X-Repo-Commit"))
    if response.status_code < 400:
        for tag in ("ETag", "X-Linked-Etag"):
            _check_name(tag, headers.get(tag))
    if not _WITH_XET.fullmatch(response.request.url.host):
        headers.pop("X-Xet-Hash", None)  # these hooks do not see Xet's writes


def _check_commit(response: Any) -> None:
    """Checks the commit in a description of a repository."""
    if _DESCRIBES not in response.request.extensions:
        return
    response.read()
    try:
        described = response.json()
    except (ValueError, RecursionError):
        return  # huggingface_hub cannot read it either
    if isinstance(described, dict):
        _check_name("sha", described.get("sha"))


def _check_name(field: str, value: Any) -> None:
    # As huggingface_hub strips it.
    name = value.lstrip("W/").strip('"') if isinstance(value, str) else value
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", "..")):
        raise RefusedAnswer(
            f"{field} must be of letters, digits, _, . and -, got {str(value)[:100]!r}, which could name any file of "
            "this machine; do not use this Hub."
        )


class _Counted(httpx.SyncByteStream):  # type: ignore[misc]
    """A body of limited length."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        left = self._most
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise RefusedAnswer(f"an answer must have at most {self._most} bytes, got more; do not use this Hub.")
            yield chunk

    def close(self) -> None:
        self._stream.close()
