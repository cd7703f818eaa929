"""Reads seasons, results and checkpoints from a Hub."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_credit.hub.loading import Fetched, NoFiles, fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.retries import HubError
from hf_credit.hub.safety import MOST_FILES
from hf_credit_leaderboard.results import Results, read_results
from hf_credit_leaderboard.seasons import SEASON_FILE, Season

MOST_LISTED = MOST_FILES // 2
"""The most entries of a season: with a record each, they are the most files that `fetch` takes."""

_LISTED = ("entries/*.json", "records/*.json")


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A Hub and the account that accesses it.

    Attributes:
        endpoint, token: as for `hf_credit.hub.client.connect`.
        cache_dir: the folder of downloads; the cache of huggingface_hub if `None`.
    """

    endpoint: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    cache_dir: Path | None = None

    def get(
        self,
        repo: str,
        repo_type: str,
        revision: str | None = None,
        allow: Sequence[str] | None = None,
        most_bytes: int | None = None,
        **options: Any,
    ) -> Fetched:
        """Calls `hf_credit.hub.loading.fetch` for this Hub."""
        options |= {"token": self.token, "endpoint": self.endpoint, "cache_dir": self.cache_dir}
        return fetch(repo, repo_type=repo_type, revision=revision, allow=allow, most_bytes=most_bytes, **options)

    def publish(self, files: Mapping[str, Path | bytes], repo: str, repo_type: str, **options: Any) -> Published:
        """Calls `hf_credit.hub.publishing.publish` for this Hub."""
        return publish(files, repo, repo_type=repo_type, token=self.token, endpoint=self.endpoint, **options)

    def season(self, benchmark: str) -> tuple[Season, str]:
        """Fetches the season of a benchmark and returns it with its commit.

        Raises:
            ValueError: the dataset holds no season, or that of another benchmark.
        """
        fetched = self.get(benchmark, "dataset", allow=(SEASON_FILE,))
        season = Season.read(fetched.files[SEASON_FILE].read_bytes())
        if season.benchmark != benchmark:
            raise ValueError(f"the season of {benchmark} must name it, got {season.benchmark}; publish its own.")
        return season, fetched.commit

    def results(self, season: Season) -> Results:
        """Fetches the entries of a season that are listed now."""
        try:
            # Each file is judged alone, when it is read.
            results = read_results(self.get(season.results, "dataset", None, _LISTED, checked=False).folder, season)
        except NoFiles:
            results = Results(season=season, rows=())
        if not season.cells:
            return results
        from hf_credit_bench import load_cells  # most seasons name no cells, and this takes a second

        try:
            cells = load_cells(season.cells, token=self.token, endpoint=self.endpoint)
        except (ValueError, HubError) as error:
            problem = f"{season.cells}: {str(error)[:300]}"
            return dataclasses.replace(results, problems=(*results.problems, problem))
        return dataclasses.replace(results, cells=tuple(cells))


class Source:
    """The results of a season, which `load` reads again. If that fails, the last results stay.

    Attributes:
        results: the last results that could be read; `None` before the first.
        trouble: the reason why the last read failed, in one sentence; "" after a success.
    """

    def __init__(self, read: Callable[[], Results]) -> None:
        self._read = read
        self.results: Results | None = None
        self.trouble = ""
        self._lock = threading.Lock()

    @classmethod
    def of_hub(cls, hub: Hub, benchmark: str) -> Source:
        """Builds the source of a benchmark's season on a Hub."""
        return cls(lambda: hub.results(hub.season(benchmark)[0]))

    def load(self) -> Results | None:
        """Reads the results again and returns `results`."""
        with self._lock:
            try:
                results = self._read()
                self.trouble = ""
                # Equal results stay the same object, whose ranks are cached.
                if self.results is None or vars(results) != vars(self.results):
                    self.results = results
            except (ValueError, OSError) as error:
                self.trouble = f"The Hub returned no results ({str(error)[:300]}); the page shows earlier ones."
            return self.results
