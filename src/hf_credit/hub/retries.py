"""What is asked of a Hub again: a request that failed for a reason that passes.

The client of huggingface_hub asks again while it uploads, but not when it creates, looks, commits or downloads. A
commit is not asked again here either: its answer may be lost after it was made (see `publishing`).
"""

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
from hf_credit.http_guard import MOST_BODY, RefusedAnswer, bounded, guard, httpx, place_of, was_reached
from hf_credit.redaction import redacted

T = TypeVar("T")

logger = logging.getLogger(__name__)

ATTEMPTS = 20
"""Of a request, with about two minutes of waiting in all."""

LONGEST_WAIT = 900
"""Seconds that a Hub may ask to wait; a client that is to wait longer stops."""

_SILENT_SECONDS = 1

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_REASONS: Mapping[type[BaseException], str] = {
    OfflineModeIsEnabled: "the Hub must be reachable, got HF_HUB_OFFLINE=1; unset it.",
    RevisionNotFoundError: "there is no such revision; name a commit, a branch or a tag that exists.",
    RemoteEntryNotFoundError: "there is no such file; see the repository for what it holds.",
    GatedRepoError: "access must be granted first; ask for it on the repository's page.",
    RepositoryNotFoundError: "there is no such repository, or it is private; check its name and kind, or pass a token "
    "that may read it.",
}
_REFUSALS = {
    401: "the token must be valid, got {}; pass another one.",
    403: "the token must have the right to do this, got {}; pass one that may write here.",
    507: "the Hub's disk is full, got {}; what was there before still is; free space and run it again.",
}


class HubError(StoreError):
    """What a Hub refused or failed to do, in one sentence."""


class Conflict(HubError):
    """Somebody else changed the repository meanwhile."""


def retried(call: Callable[[], T], what: str, body: int = MOST_BODY) -> T:
    """The answer of `call`, which is asked again while it fails for a reason that passes.

    Args:
        call: may be asked any number of times.
        what: is asked, as `reading me/sudoku`, for the sentence of an error.
        body: the most bytes of an answer to it.

    Raises:
        HubError: it was refused, failed to the end, or had an answer that is not taken (see `http_guard`).
    """
    guard()
    for attempt in range(ATTEMPTS):
        try:
            with bounded(body):
                return call()
        except Exception as error:
            wait_after(error, attempt, what)
    raise AssertionError("the last attempt returns or raises")


def wait_after(error: Exception, attempt: int, what: str) -> None:
    """Waits until what failed may be tried again, and says so where that takes a while.

    Args:
        error: with which it failed.
        attempt: its number, from 0.
        what: was asked.

    Raises:
        HubError: it will fail again, or did so to the end.
    """
    if not is_passing(error) or attempt == ATTEMPTS - 1:
        raise explained(error, what) from error
    seconds = waiting_time(error, attempt)
    if seconds >= _SILENT_SECONDS:
        logger.warning("%s; trying again in %.0f seconds", str(explained(error, what)).rstrip("."), seconds)
    pause(seconds)


def pause(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed later: the connection broke, or the Hub says that it is busy.

    A Hub that never answered to this process is not waited for.
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
        # A download that ended early; an upload whose client another thread of it closed.
        if "Consistency check failed" in str(cause) or "the client has been closed" in str(cause):
            return True
    return False


def waiting_time(error: BaseException, attempt: int) -> float:
    """Seconds until the next attempt: what the Hub says, else doubled each time from a half to eight.

    Raises:
        HubError: the Hub says longer than `LONGEST_WAIT`.
    """
    said = _said_to_wait(error)
    if said is None:
        # Not all clients at once.
        return min(0.5 * 2**attempt, 8.0) * random.uniform(0.5, 1)
    if said > LONGEST_WAIT:
        raise HubError(
            f"the Hub must answer within {LONGEST_WAIT} seconds, got told to wait {said}; try again after that."
        )
    return said


def explained(error: BaseException, what: str) -> HubError:
    """What went wrong in one sentence, without tokens."""
    if isinstance(error, HubError):
        return error
    text = redacted(_reason(error))
    return HubError(f"{what}: {text}")


def status_of(error: BaseException) -> int | None:
    """The HTTP status that a Hub answered with, if it answered."""
    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError):
            return cause.response.status_code
    return None


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
            known = _REFUSALS.get(status, otherwise if status in _PASSING else "the Hub refused with {}.")
            return known.format(answer)
        if isinstance(cause, httpx.TransportError):
            return f"the Hub must be reachable, got {type(cause).__name__} ({cause}); check address and connection."
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _said_to_wait(error: BaseException) -> int | None:
    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError) and cause.response.status_code in (429, 503):
            headers = cause.response.headers
            limit = parse_ratelimit_headers(headers)
            if limit is not None and limit.remaining == 0:
                return limit.reset_in_seconds
            after = headers.get("Retry-After", "")
            return int(after) if after.isdigit() else None
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from, outermost first."""
    seen = 0
    while error is not None and seen < 10:
        yield error
        error, seen = error.__cause__ or error.__context__, seen + 1
