"""Where a season, its results and checkpoints are read from: a Hub, or a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_credit.hub.cell_sets import load_cells
from hf_credit.hub.leaderboard.entries import PlayedEpisode, episodes_path, read_episodes
from hf_credit.hub.leaderboard.results import Results, Row, read_results
from hf_credit.hub.leaderboard.seasons import Season
from hf_credit.hub.leaderboard.weights import WANTED
from hf_credit.hub.loading import Fetched, fetch
from hf_credit.hub.publishing import Published, publish

_LISTED = ("entries/*.json", "records/*.json")


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Which Hub is spoken to, and as whom.

    Attributes:
        endpoint, token: as for `hf_credit.hub.client.connect`.
        cache_dir: where downloads lie; the cache of huggingface_hub if `None`.
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
    ) -> Fetched:
        """`hf_credit.hub.loading.fetch` from this Hub."""
        return fetch(
            repo,
            repo_type=repo_type,
            revision=revision,
            token=self.token,
            endpoint=self.endpoint,
            allow=allow,
            cache_dir=self.cache_dir,
            most_bytes=most_bytes,
        )

    def publish(self, files: dict[str, Path | bytes], repo: str, repo_type: str, **options: Any) -> Published:
        """`hf_credit.hub.publishing.publish` to this Hub."""
        return publish(files, repo, repo_type=repo_type, token=self.token, endpoint=self.endpoint, **options)

    def season(self, benchmark: str, revision: str | None = None) -> tuple[Season, Path, str]:
        """The season of a benchmark, its folder and its commit.

        Raises:
            ValueError: there is none, or it names another benchmark.
        """
        found = self.get(benchmark, "dataset", revision)
        season = Season.load(found.folder)
        if season.benchmark != benchmark:
            raise ValueError(f"the season of {benchmark} must name it, got {season.benchmark}; publish its own.")
        return season, found.folder, found.commit

    def results(self, season: Season) -> Results:
        """What is listed of a season now."""
        try:
            results = read_results(self.get(season.results, "dataset", None, _LISTED).folder, season)
        except ValueError:  # nothing is listed yet
            results = Results(season=season, rows=())
        if not season.cells:
            return results
        try:
            cells = load_cells(season.cells, token=self.token, endpoint=self.endpoint)
        except ValueError as error:
            problem = f"{season.cells}: {str(error)[:300]}"
            return dataclasses.replace(results, problems=(*results.problems, problem))
        return dataclasses.replace(results, cells=tuple(cells))

    def checkpoint(self, repo: str, commit: str, most_bytes: int | None = None) -> Path:
        """The folder of a checkpoint at a commit, in safetensors and text alone, of at most so many bytes.

        The cache holds links to files that lie together with those of other commits; the folder holds the files, so
        that a process which may read it can read nothing else.
        """
        found = self.get(repo, "model", commit, WANTED, most_bytes)
        plain = found.folder.parent.parent / "plain" / found.commit
        if not plain.is_dir():
            plain.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(dir=plain.parent))
            for name, path in found.files.items():
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, unfinished / name)
            with contextlib.suppress(OSError):  # another process was first
                unfinished.rename(plain)
        return plain


class Source:
    """Results that are read again when they have changed. Trouble is shown beside the last ones that were read.

    Args:
        read: the results as they are now.
        episodes: the replies behind a row.

    Attributes:
        results: the last that could be read; `None` where none ever could.
        trouble: why newer ones could not be, in one sentence; empty where they could.
    """

    def __init__(self, read: Callable[[], Results], episodes: Callable[[Row], list[PlayedEpisode]]) -> None:
        self._read = read
        self.episodes = episodes
        self.results: Results | None = None
        self.trouble = ""
        self._lock = threading.Lock()

    @classmethod
    def of_folder(cls, folder: str | Path, season: Season) -> Source:
        """Of a folder with the files of a results dataset."""
        return cls(
            lambda: read_results(folder, season),
            lambda row: read_episodes(Path(folder) / episodes_path(row.id), row.entry, season),
        )

    @classmethod
    def of_hub(cls, hub: Hub, benchmark: str) -> Source:
        """Of the season that a benchmark holds, and of its results."""

        def episodes(row: Row) -> list[PlayedEpisode]:
            season, _, _ = hub.season(benchmark)
            path = episodes_path(row.id)
            return read_episodes(hub.get(season.results, "dataset", None, [path]).files[path], row.entry, season)

        return cls(lambda: hub.results(hub.season(benchmark)[0]), episodes)

    def load(self) -> Results | None:
        """Reads again, and gives `results`."""
        with self._lock:
            try:
                found = self._read()
                self.trouble = ""
                # What is the same stays the same object, whose ranks are known.
                if self.results is None or vars(found) != vars(self.results):
                    self.results = found
            except (ValueError, OSError) as error:
                self.trouble = f"The Hub gave no results ({str(error)[:300]}); shown is what was read before."
            return self.results
