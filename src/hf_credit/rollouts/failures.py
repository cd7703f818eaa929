"""Failures of a task's own code: logged at their first occurrence, and raised if every episode failed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hf_credit.rollouts.episode import Ending, Episode

logger = logging.getLogger(__name__)


class EveryEpisodeFailedError(RuntimeError):
    """Every episode of a batch ended in an error. The first of these is the cause."""


class FailureLog:
    """Logs the first failure of each kind with its traceback; a kind is the type and the line of an exception.

    A failed episode does not affect others. Later failures of the same kind are only counted in `endings/error`.
    """

    def __init__(self) -> None:
        self.latest: Exception | None = None
        self._known: set[tuple[type[Exception], str, int | None]] = set()

    def add(self, error: Exception, what: str = "an episode") -> None:
        """Logs an exception if it is the first of its kind.

        Args:
            error: the exception. Its frames are cleared, since they may hold a GPU's memory.
            what: what failed, for the log.
        """
        self.latest = error
        place = traceback.extract_tb(error.__traceback__)[-1:] or [traceback.FrameSummary("", None, "")]
        kind = (type(error), place[0].filename, place[0].lineno)
        if kind not in self._known:
            self._known.add(kind)
            logger.error("%s failed; further failures of this kind are counted and not shown.", what, exc_info=error)
        for linked in _chain(error):
            traceback.clear_frames(linked.__traceback__)


def in_one_line(error: Exception) -> str:
    """Returns the type and the message of an exception in one line of at most 500 characters."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]


def refuse_total_failure(
    episodes: Sequence[Episode], gather: Callable[[list[Any]], list[Any]] = list, what: str = "of an update"
) -> None:
    """Raises an error if every episode failed.

    Args:
        episodes: the episodes of this process; an empty list is not a failure.
        gather: returns the items of all processes, which must all call this function at the same time.
        what: describes the episodes in the message.

    Raises:
        EveryEpisodeFailedError: every episode of all processes ended in an error; the cause is the first one of this
            process.
    """
    failed = [episode for episode in episodes if episode.ending == Ending.ERROR]
    gathered = gather([(len(episodes), len(failed), failed[0].error if failed else None)])
    played = sum(count for count, _, _ in gathered)
    if not played or sum(count for _, count, _ in gathered) < played:
        return
    first = next(error for _, _, error in gathered if error is not None)
    raise EveryEpisodeFailedError(
        f"some episode {what} must end without an error, got {played} of {played} with errors, the first with "
        f"{first}; fix the code in the traceback."
    ) from (failed[0].exception if failed else None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception with its causes and contexts."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        linked = left.pop()
        if linked is not None and id(linked) not in seen:
            seen.add(id(linked))
            yield linked
            left += [linked.__cause__, linked.__context__]
