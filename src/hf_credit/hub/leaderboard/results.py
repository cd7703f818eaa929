"""The results of a season as they lie in their dataset, and what is shown of them: ranks, comparisons."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_credit.evaluation.statistics import Interval, paired_difference, permutation_test
from hf_credit.hub.leaderboard.entries import Entry, entry_id, episodes_path
from hf_credit.hub.leaderboard.inputs import DIGEST, MOST_BYTES
from hf_credit.hub.leaderboard.ranking import Ranked, rank, score_interval
from hf_credit.hub.leaderboard.records import SELF_REPORTED, Record, record_path
from hf_credit.hub.leaderboard.replies import MOST_FILE_BYTES, PlayedEpisode, read_replies
from hf_credit.hub.leaderboard.seasons import Season

RANKINGS_FILE = "rankings.parquet"
_MOST_RECORD = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entry as it is listed, with what was found of it.

    Attributes:
        id: of the entry.
        entry: what it claims.
        record: what the verifier found; `None` where nobody has looked yet.
    """

    id: str
    entry: Entry
    record: Record | None = None

    @property
    def badge(self) -> str:
        """`self-reported`, `replayed` or `verified`."""
        return SELF_REPORTED if self.record is None else self.record.badge

    @property
    def seeds(self) -> int:
        """How many training seeds stand behind it; repeats with random numbers of their own for credit."""
        return len(self.entry.checkpoints)


@dataclass(frozen=True, kw_only=True, eq=False)  # one is itself: its ranks are computed once
class Results:
    """All that is listed of a season.

    Attributes:
        season: whose.
        rows: the entries, in the order of their ids.
        problems: files that could not be read, a sentence each: they are listed nowhere else.
    """

    season: Season
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()

    def board(self, name: str) -> list[Row]:
        """The rows of one board."""
        return [row for row in self.rows if row.entry.board == name]

    def row(self, name: str) -> Row:
        """The row with this id.

        Raises:
            ValueError: there is none.
        """
        for row in self.rows:
            if row.id == name:
                return row
        raise ValueError(f"an entry must be listed, got {name[:40]!r}, which is not; choose one of the board.")

    def ranks(self, board: str) -> list[Ranked]:
        """The ranks of a board's verified entries; copies have none, nor have those whose chat template is unknown."""
        return _ranks(self, board)


def read_results(folder: str | Path, season: Season) -> Results:
    """The results in a folder. A file that breaks a rule is a problem, and never an error.

    Args:
        folder: of the results dataset.
        season: whose entries are read; those of others are passed over.
    """
    folder = Path(folder)
    rows, problems = [], []
    for path in sorted((folder / "entries").glob("*.json")):
        try:
            entry = Entry.from_json(_bounded(path, MOST_BYTES))
            if entry.season != season.name:
                continue
            if path.stem != entry_id(path.read_bytes(), entry.episodes_sha256):
                raise ValueError("an entry must be called by its digest, got another name.")
            held = folder / record_path(path.stem)
            record = Record.read(_bounded(held, _MOST_RECORD), season) if held.is_file() else None
            if record is not None and (record.entry, record.board) != (path.stem, entry.board):
                raise ValueError("a record must be of the entry that it lies beside, got another one's.")
            rows.append(Row(id=path.stem, entry=entry, record=record))
        except (ValueError, TypeError, KeyError, OSError) as error:
            problems.append(f"{path.stem[:40]}: {str(error)[:300]}")
    return Results(season=season, rows=tuple(rows), problems=tuple(problems))


def read_episodes(folder: str | Path, row: Row, season: Season) -> list[PlayedEpisode]:
    """The replies behind an entry.

    Raises:
        ValueError: the file is not the one that the entry names, or breaks a limit.
        OSError: there is none.
    """
    path = Path(folder) / episodes_path(row.id)
    require_digest(path, row.entry.episodes_sha256)
    return read_replies(path, expected_rows(row.entry, season))


def expected_rows(entry: Entry, season: Season) -> int:
    """How many episodes must be behind an entry."""
    if entry.kind == "credit":
        return season.credit_board(entry.board).repeats
    return len(entry.checkpoints) * season.board(entry.board).public


def require_digest(path: Path, digest: str) -> None:
    """Refuses a file other than the one that an entry names.

    Raises:
        ValueError: it is another one, or too large.
        OSError: there is none.
    """
    if path.stat().st_size > MOST_FILE_BYTES:
        raise ValueError(f"the file of replies must have at most {MOST_FILE_BYTES} bytes, got more; shorten replies.")
    if not DIGEST.fullmatch(digest) or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise ValueError(
            "the file of replies must be the one that the entry names, got another; submit both together."
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two verified entries of a board, task by task.

    Attributes:
        difference: the mean of a - b over secret tasks, with its 95 % interval over these.
        p_value: of the paired permutation test.
        wins, ties, losses: tasks on which a is better than, equal to or worse than b.
        differences: of each task, a - b, each the mean over its checkpoints.
        seeds: the fewer training seeds of the two.
    """

    difference: Interval
    p_value: float
    wins: int
    ties: int
    losses: int
    differences: tuple[float, ...]
    seeds: int


def compare_rows(a: Row, b: Row) -> Comparison:
    """Compares two entries on the secret tasks that both were played on.

    Raises:
        ValueError: one of them is not verified, they are the same, or of other boards.
    """
    if a.id == b.id or a.entry.board != b.entry.board:
        raise ValueError("two entries of one board can be compared, got the same one or another board's; choose two.")
    means: list[list[float]] = []
    for row in (a, b):
        if row.record is None or not row.record.secret:
            raise ValueError(f"entries that are compared must be verified, got {row.entry.name!r}, which is not.")
        means.append([fmean(column) for column in zip(*row.record.secret, strict=True)])
    own, theirs = means
    differences = tuple(one - other for one, other in zip(own, theirs, strict=True))
    equal = not any(differences)
    return Comparison(
        difference=paired_difference(own, theirs),
        p_value=1.0 if equal else permutation_test(own, theirs).p_value,
        wins=sum(one > 0 for one in differences),
        ties=sum(one == 0 for one in differences),
        losses=sum(one < 0 for one in differences),
        differences=differences,
        seeds=min(len(a.record.secret), len(b.record.secret)) if a.record and b.record else 0,
    )


def scores_interval(row: Row) -> Interval | None:
    """The mean of a verified entry of credit over its repeats, with the interval that its rank is shown with; `None`
    where it is not verified."""
    if row.record is None or not row.record.secret:
        return None
    return score_interval(row.record.secret)


def rankings_table(results: Results) -> list[dict[str, Any]]:
    """What `rankings.parquet` holds: a row an entry of each board, ranked or not."""
    found: list[dict[str, Any]] = []
    boards = [*(one.name for one in results.season.tasks), *(one.name for one in results.season.credit)]
    for board in boards:
        ranked = {one.entry: one for one in results.ranks(board)}
        for row in results.board(board):
            own = ranked.get(row.id)
            found.append(
                {
                    "board": board,
                    "entry": row.id,
                    "name": row.entry.name,
                    "method": str(row.entry.method["name"]),
                    "badge": row.badge,
                    "copy_of": None if row.record is None else row.record.copy_of,
                    "rank_best": None if own is None else own.best,
                    "rank_worst": None if own is None else own.worst,
                    "mean": None if own is None else own.score.mean,
                    "low": None if own is None else own.score.low,
                    "high": None if own is None else own.score.high,
                    "seeds": row.seeds,
                }
            )
    return found


def write_rankings(results: Results, path: str | Path) -> Path:
    """Writes `rankings_table` as parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    whole = pa.int64()
    schema = pa.schema(
        [(name, pa.string()) for name in ("board", "entry", "name", "method", "badge", "copy_of")]
        + [("rank_best", whole), ("rank_worst", whole)]
        + [(name, pa.float64()) for name in ("mean", "low", "high")]
        + [("seeds", whole)]
    )
    parquet.write_table(pa.Table.from_pylist(rankings_table(results), schema=schema), str(path))
    return Path(path)


@functools.lru_cache(maxsize=64)
def _ranks(results: Results, board: str) -> list[Ranked]:
    verified = {
        row.id: row.record.secret
        for row in results.board(board)
        if row.record and row.record.ranked_in(results.season)
    }
    return rank(verified) if verified else []


def _bounded(path: Path, most: int) -> bytes:
    if path.is_symlink():
        # A snapshot of the Hub's cache is links to its blobs, which are its own.
        path = path.resolve()
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"a file of results must have at most {most} bytes, got more in {path.name[:80]!r}.")
    return content
