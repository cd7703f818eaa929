"""Failures of a task's own code: logged at their first occurrence, and raised if every episode failed."""

from __future__ import annotations

import itertools
import logging
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hf_credit.environments.replayed import DivergedError
from hf_credit.rollouts.episode import Ending, Episode
from hf_credit.rollouts.running import RolloutRequest

logger = logging.getLogger(__name__)

UNKNOWN = "replays/unknown"
"""The metric of states whose replays all failed."""


class EveryEpisodeFailedError(RuntimeError):
    """Every episode of a batch ended in an error. The first of these is the cause."""


class UnknownValuesError(EveryEpisodeFailedError, ValueError):
    """Most states that a method replays have no value, since a replay of them diverged or all failed."""


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


def unknown_where_diverged(episodes: Sequence[Episode], requests: Sequence[RolloutRequest[Any]]) -> list[Episode]:
    """Returns episodes, all of which failed where one that continued from the same state, or is of the same tree,
    diverged: its task does not repeat itself there, so what the others continued from is not that state either.

    Other failures leave the others as they are. What a reply causes is an outcome, so these have other causes.

    Args:
        episodes: of one call of `Engine.run`.
        requests: its arguments.
    """
    origins = [_origin(episode, requests) for episode in episodes]
    diverged = {
        origin: episode
        for origin, episode in zip(origins, episodes, strict=True)
        if origin is not None and isinstance(episode.exception, DivergedError)
    }
    return [
        episode
        if origin not in diverged or episode.ending == Ending.ERROR
        else replace(
            episode,
            outcome=math.nan,
            ending=Ending.ERROR,
            metrics={},
            error=diverged[origin].error,
            exception=diverged[origin].exception,
            next_context=None,
            final_state=None,
        )
        for origin, episode in zip(origins, episodes, strict=True)
    ]


def _origin(episode: Episode, requests: Sequence[RolloutRequest[Any]]) -> tuple[str, int] | None:
    """The state that an episode continues from, or its tree; `None` for one alone from the start."""
    request = requests[episode.start]
    if request.state is not None:
        return "state", id(request.state)
    return ("tree", episode.start) if request.fanout else None


def record_replays(
    episodes: Sequence[Episode],
    requests: Sequence[RolloutRequest[Any]],
    mean: Callable[[str, Sequence[float]], None],
) -> None:
    """Records `replays/failed`, the share of replays that ended in an error, and `replays/unknown`, the share of the
    states that they began in from which all did, so that the value is unknown.

    Episodes of a task that branch count as replays of its first state once one has diverged.

    Args:
        episodes: of one call of `Engine.run`.
        requests: its arguments; those from a recorded state, or only for comparison, are replays.
        mean: as `MethodContext.mean`.
    """
    failed: dict[tuple[str, int], list[float]] = {}
    diverged = any(isinstance(episode.exception, DivergedError) for episode in episodes)
    for episode in episodes:
        request, origin = requests[episode.start], _origin(episode, requests)
        replayed = request.state is not None and (request.comparison or not request.task)
        if origin is not None and (replayed or diverged):
            failed.setdefault(origin, []).append(float(episode.ending == Ending.ERROR))
    mean("replays/failed", list(itertools.chain(*failed.values())))
    mean(UNKNOWN, [min(of_state) for of_state in failed.values()])


def check_replays(values: Mapping[str, Sequence[float]], error: str | None, warned: bool) -> bool:
    """Warns of failed replays, unless `warned`, and returns whether it has warned.

    Args:
        values: what `record_replays` recorded in an update, on all processes.
        error: a failure of the update in one line, if there is one.
        warned: whether it has warned before.

    Raises:
        UnknownValuesError: more than half of the states that were replayed have no outcome.
    """
    failed, unknown = (values.get(name, ()) for name in ("replays/failed", UNKNOWN))
    what = f"such as {error}" if error else "as endings/error shows"
    if 2 * sum(unknown) > len(unknown):
        raise UnknownValuesError(
            f"replays must give a value to at least half of the states of an update, got none for {sum(unknown):.0f} "
            f"of {len(unknown)}, whose replays failed, {what}; make the task repeat itself, or take a method without "
            "replays, such as grpo."
        )
    if any(failed) and not warned:
        logger.warning(
            "%.0f%% of replays failed, %s: %.0f%% of the states have no value, so their decisions get no credit, and "
            "the means of others are biased if failing depends on the replies, or on the number of steps after them; "
            "replays/failed and replays/unknown count them from now on.",
            100 * sum(failed) / len(failed),
            what,
            100 * sum(unknown) / len(unknown),
        )
    return warned or any(failed)


def in_one_line(error: Exception) -> str:
    """Returns the type and the message of an exception in one line of at most 500 characters."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]


def refuse_total_failure(
    episodes: Sequence[Episode], gather: Callable[[list[Any]], list[Any]] = list, what: str = "of an update"
) -> bool:
    """Raises an error if every episode failed.

    Args:
        episodes: the episodes of this process; an empty list is not a failure.
        gather: returns the items of all processes, which must all call this function at the same time.
        what: describes the episodes in the message.

    Returns:
        Whether any process has episodes.

    Raises:
        EveryEpisodeFailedError: every episode of all processes ended in an error; the cause is the first one of this
            process.
        UnknownValuesError: the same, and the first one diverged.
    """
    failed = [episode for episode in episodes if episode.ending == Ending.ERROR]
    diverged = bool(failed) and isinstance(failed[0].exception, DivergedError)
    gathered = gather([(len(episodes), len(failed), failed[0].error if failed else None, diverged)])
    played = sum(count for count, *_ in gathered)
    if not played or sum(count for _, count, *_ in gathered) < played:
        return played > 0
    first, diverged = next((error, other) for *_, error, other in gathered if error is not None)
    kind, remedy = (
        (UnknownValuesError, "make the task repeat itself")
        if diverged
        else (EveryEpisodeFailedError, "fix the code in the traceback")
    )
    raise kind(
        f"some episode {what} must end without an error, got {played} of {played} with errors, the first with "
        f"{str(first).rstrip('.')}; {remedy}."
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
