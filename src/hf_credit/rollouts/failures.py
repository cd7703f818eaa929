"""Failures outside the model: logged at their first occurrence, and raised if no episode is left."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hf_credit.rollouts.episode import Ending, Episode

logger = logging.getLogger(__name__)


class EveryEpisodeFailedError(RuntimeError):
    """Every episode of a batch ended as an error. The first of these is its cause."""


class FailureLog:
    """Logs the first failure of each kind with its traceback; a kind is an exception's type and where it was raised.

    A failed episode is data and does not affect others. Its code is broken, and its author must see where. Later
    failures of the same kind are only counted in `endings/error`.
    """

    def __init__(self) -> None:
        self.latest: Exception | None = None
        self._known: set[tuple[type[Exception], str, int | None]] = set()

    def add(self, error: Exception, what: str = "an episode") -> None:
        """Logs `error` if it is the first of its kind.

        Args:
            error: as it was caught. Its frames are cleared, since they may hold a GPU's memory.
            what: failed.
        """
        self.latest = error
        place = traceback.extract_tb(error.__traceback__)[-1:] or [traceback.FrameSummary("", None, "")]
        kind = (type(error), place[0].filename, place[0].lineno)
        if kind not in self._known:
            self._known.add(kind)
            logger.error("%s failed; further failures of this kind are counted and not shown.", what, exc_info=error)
        for one in _chain(error):
            traceback.clear_frames(one.__traceback__)


def in_one_line(error: Exception) -> str:
    """The type and the message of an exception, at most 500 characters."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]


def refuse_total_failure(
    episodes: Sequence[Episode], gather: Callable[[list[Any]], list[Any]] = list, what: str = "of an update"
) -> None:
    """Raises if every episode failed, because training or measuring without episodes would hide it.

    Args:
        episodes: of this process; an empty list is not a failure.
        gather: the items of all processes, which must all call this at the same time.
        what: name of the episodes in the message.

    Raises:
        EveryEpisodeFailedError: every episode of all processes ended as an error; its cause is the first of these in
            this process.
    """
    failed = [episode for episode in episodes if episode.ending == Ending.ERROR]
    told = gather([(len(episodes), len(failed), failed[0].error if failed else None)])
    played = sum(count for count, _, _ in told)
    if not played or sum(count for _, count, _ in told) < played:
        return
    first = next(error for _, _, error in told if error is not None)
    raise EveryEpisodeFailedError(
        f"some episode {what} must come to an end, got {played} of {played} that ended as errors, the first with "
        f"{first}; mend the code that the traceback names."
    ) from (failed[0].exception if failed else None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception with its causes and contexts."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]
