"""Retries of requests to a Hub after transient failures, which huggingface_hub does for uploads only. `publishing`
retries commits itself, since a commit may succeed although its response is lost."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers

from hf_credit.checkpoint_store import StoreError
from hf_credit.http_guard import MOST_BODY, RefusedAnswer, bounded, httpx, place_of, was_reached
from hf_credit.redaction import redacted, written_out

T = TypeVar("T")

logger = logging.getLogger(__name__)

ATTEMPTS = 20
"""The most attempts of a request, with about two minutes of waiting in total."""

LONGEST_WAIT = 900
"""The longest wait in seconds that a Hub may request; a longer one is an error."""

_SILENT_SECONDS = 1

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_REASONS: Mapping[type[BaseException], str] = {
    OfflineModeIsEnabled: "the Hub must be reachable, got HF_HUB_OFFLINE=1; unset it.",
    RevisionNotFoundError: "there is no such revision; name an existing commit, branch or tag.",
    RemoteEntryNotFoundError: "there is no such file; see the repository's page for its files.",
    GatedRepoError: "access must be granted first; request it on the repository's page.",
    RepositoryNotFoundError: "there is no such repository, or it is private; check its name and type, or pass a token "
    "that may read it.",
}
_REFUSALS = {
    401: "the token must be valid, got {}; pass another one.",
    403: "the token must have the right to do this, got {}; pass one that may write here.",
    507: "the Hub's disk is full, got {}; nothing was lost; free space and run it again.",
}


class HubError(StoreError):
    """A request that a Hub refused or failed, in one sentence."""


class Conflict(HubError):
    """Somebody else changed the repository during a publication."""


def retried(call: Callable[[], T], what: str, body: int = MOST_BODY) -> T:
    """Calls `call` until it succeeds, with retries after transient failures.

    Args:
        call: an idempotent request.
        what: the request in the words of errors, such as `reading me/sudoku`.
        body: the most bytes of a response.

    Raises:
        HubError: the Hub refused the request, failed after all retries, or sent a response that `http_guard` refuses.
    """
    for attempt in range(ATTEMPTS):
        try:
            with bounded(body):
                return call()
        except Exception as error:
            wait_after(error, attempt, what)
    raise AssertionError("the last attempt returns or raises")


def wait_after(error: Exception, attempt: int, what: str) -> None:
    """Waits until the next attempt of a failed request, and logs a warning if the wait is long.

    The wait is what the Hub requests, else 0.5 s, doubled up to 8 s, with jitter.

    Args:
        attempt: the number of the failed attempt, from 0.
        what: as for `retried`.

    Raises:
        HubError: the failure is not transient, this was the last attempt, or the Hub requests a longer wait than
            `LONGEST_WAIT`.
    """
    if not is_passing(error) or attempt == ATTEMPTS - 1:
        raise explained(error, what) from error
    seconds = _requested_wait(error)
    if seconds is None:
        seconds = min(0.5 * 2**attempt, 8.0) * random.uniform(0.5, 1)
    elif seconds > LONGEST_WAIT:
        raise HubError(f"the Hub may request waits of {LONGEST_WAIT} seconds, got {seconds}; try again after that.")
    if seconds >= _SILENT_SECONDS:
        logger.warning("%s; trying again in %.0f seconds", str(explained(error, what)).rstrip("."), seconds)
    pause(seconds)


def pause(seconds: float) -> None:
    """Sleeps; tests replace it."""
    time.sleep(seconds)


def is_passing(error: BaseException) -> bool:
    """Returns whether the same request may succeed later: the connection broke, or the Hub is busy.

    A connection error is not transient if the Hub has never responded to this process.
    """
    for cause in _causes(error):
        if isinstance(cause, OfflineModeIsEnabled | RefusedAnswer):
            return False
        if isinstance(cause, HfHubHTTPError):
            return cause.response.status_code in _PASSING
        if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout):
            return was_reached(place_of(cause.request))
        if isinstance(cause, httpx.TransportError):
            return not isinstance(cause, httpx.UnsupportedProtocol)
        # A truncated download, or an upload whose client another thread closed.
        if "Consistency check failed" in str(cause) or "the client has been closed" in str(cause):
            return True
    return False


def explained(error: BaseException, what: str) -> HubError:
    """Returns an error that states the failure in one sentence, without tokens and control characters."""
    return error if isinstance(error, HubError) else HubError(f"{what}: {written_out(redacted(_reason(error)))}")


def _reason(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, RefusedAnswer):
            return str(cause)
        for kind, reason in _REASONS.items():
            if isinstance(cause, kind):
                return reason
        if isinstance(cause, HfHubHTTPError):
            status, answer = cause.response.status_code, cause.server_message or cause.response.reason_phrase
            answer = f"{' '.join(answer.split()).rstrip('.')[:500]} ({status})"
            otherwise = f"the Hub answered {{}} {ATTEMPTS} times; try again later."
            template = _REFUSALS.get(status, otherwise if status in _PASSING else "the Hub refused with {}.")
            return template.format(answer)
        if isinstance(cause, httpx.TransportError):
            return f"the Hub must be reachable, got {type(cause).__name__} ({cause}); check address and connection."
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _requested_wait(error: BaseException) -> float | None:
    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError) and cause.response.status_code in (429, 503):
            headers = cause.response.headers
            limit = parse_ratelimit_headers(headers)
            if limit is not None and limit.remaining == 0:
                return limit.reset_in_seconds
            after = headers.get("Retry-After", "")
            return int(after) if after.isascii() and after.isdigit() else None
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and its causes, outermost first."""
    seen = 0
    while error is not None and seen < 10:
        yield error
        error, seen = error.__cause__ or error.__context__, seen + 1
