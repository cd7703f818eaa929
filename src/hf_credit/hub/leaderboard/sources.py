"""Where the page has its results from: a Hub, or a folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hf_credit.hub.leaderboard.replies import PlayedEpisode
from hf_credit.hub.leaderboard.results import Results, Row, read_episodes, read_results
from hf_credit.hub.leaderboard.seasons import Season
from hf_credit.hub.leaderboard.submission import Hub

_LISTED = ("entries/*.json", "records/*.json")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the page shows now.

    Attributes:
        results: the last that could be read; `None` where none ever could.
        trouble: why newer ones could not be, in one sentence.
    """

    results: Results | None
    trouble: str = ""


class Source:
    """Results that are read again when they have changed. Trouble is shown beside the last ones that were read.

    Args:
        read: the results as they are now.
        episodes: the replies behind a row.
    """

    def __init__(self, read: Callable[[], Results], episodes: Callable[[Row], list[PlayedEpisode]]) -> None:
        self._read = read
        self._episodes = episodes
        self._last: Results | None = None
        self._lock = threading.Lock()

    @classmethod
    def of_folder(cls, folder: str | Path, season: Season) -> Source:
        """Of a folder with the files of a results dataset."""
        return cls(lambda: read_results(folder, season), lambda row: read_episodes(folder, row, season))

    @classmethod
    def of_hub(cls, hub: Hub, benchmark: str) -> Source:
        """Of the season that a benchmark holds, and of its results."""

        def read() -> Results:
            season, _, _ = hub.season(benchmark)
            try:
                folder = hub.get(season.results, "dataset", None, _LISTED).folder
            except ValueError:  # nothing is listed yet
                return Results(season=season, rows=())
            return read_results(folder, season)

        def episodes(row: Row) -> list[PlayedEpisode]:
            season, _, _ = hub.season(benchmark)
            found = hub.get(season.results, "dataset", None, [f"episodes/{row.id}.parquet"])
            return read_episodes(found.folder, row, season)

        return cls(read, episodes)

    def load(self) -> Shown:
        """The results now, or the last ones with what keeps newer ones away."""
        with self._lock:
            try:
                found = self._read()
            except (ValueError, OSError) as error:
                told = f"The Hub gave no results ({str(error)[:300]}); shown is what was read before."
                return Shown(results=self._last, trouble=told)
            if self._last is None or (found.rows, found.problems) != (self._last.rows, self._last.problems):
                self._last = found
            return Shown(results=self._last)

    def last(self) -> Shown:
        """What was read last, without asking again."""
        return Shown(results=self._last) if self._last is not None else self.load()

    def episodes(self, row: Row) -> list[PlayedEpisode]:
        """The replies behind a row.

        Raises:
            ValueError: they break a rule.
            OSError: they cannot be read.
        """
        return self._episodes(row)
