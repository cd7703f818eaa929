"""The results of a season as they lie in their dataset, and what is shown of them: ranks, comparisons."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_credit.evaluation.statistics import Interval, paired_difference, permutation_test
from hf_credit.hub.leaderboard.entries import Entry, read_entry
from hf_credit.hub.leaderboard.ranking import Ranked, rank
from hf_credit.hub.leaderboard.records import SELF_REPORTED, Record, record_path
from hf_credit.hub.leaderboard.seasons import Season

GAMES = {"relay": "number_relay", **{name: name for name in ("sum_vote", "tic_tac_toe", "evidence")}}
"""The problem of the bench that is the game of a board, by the game's name."""

RANKINGS_FILE = "rankings.parquet"
_MOST_RECORD = 64 * 2**20  # bytes


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
        """How many training seeds stand behind it; none for credit."""
        return len(self.entry.checkpoints)


@dataclass(frozen=True, kw_only=True, eq=False)  # one is itself: its ranks are computed once
class Results:
    """All that is listed of a season.

    Attributes:
        season: whose.
        rows: the entries, in the order of their ids.
        cells: what the bench found, as `hf_credit.hub.load_cells` gives it, where the season names some.
        problems: files that could not be read, a sentence each: they are listed nowhere else.
    """

    season: Season
    rows: tuple[Row, ...]
    cells: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()

    def benched(self, row: Row) -> tuple[float | None, float | None]:
        """What the bench found of an entry's method in the game of its board: how much of the exact advantage's cost
        of signal it costs, and the area under its learning curve; `None` where there is no such cell.
        """
        spec = self.season.credit_board(row.entry.board).task()
        game = GAMES.get(str(spec.environment or spec.collaboration))
        found = {
            cell["method"]: cell
            for cell in self.cells
            if (cell["problem"], cell["policy"], cell["dials"]) == (game, "start", {}) and cell["refused"] is None
        }
        cell, limit = found.get(row.entry.method["name"]), found.get("exact_advantage")
        if cell is None or cell["options"] != dict(row.entry.method["options"]):
            return None, None
        share = limit["trace"] / cell["trace"] if limit and limit["trace"] and cell["trace"] else None
        return share, fmean(cell["areas"]) if cell["areas"] else None

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
            name, entry = read_entry(path)
            if entry.season != season.name:
                continue
            if path.stem != name:
                raise ValueError("an entry must be called by its digest, got another name.")
            held = folder / record_path(name)
            record = Record.read(_bounded(held), season) if held.is_file() else None
            if record is not None and (record.entry, record.board) != (name, entry.board):
                raise ValueError("a record must be of the entry that it lies beside, got another one's.")
            rows.append(Row(id=name, entry=entry, record=record))
        except (ValueError, TypeError, KeyError, OSError) as error:
            problems.append(f"{path.stem[:40]}: {str(error)[:300]}")
    return Results(season=season, rows=tuple(rows), problems=tuple(problems))


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
    tables = []
    for row in (a, b):
        if row.record is None or not row.record.secret:
            raise ValueError(f"entries that are compared must be verified, got {row.entry.name!r}, which is not.")
        tables.append(row.record.secret)
    ours, theirs = ([fmean(column) for column in zip(*table, strict=True)] for table in tables)
    differences = tuple(one - other for one, other in zip(ours, theirs, strict=True))
    return Comparison(
        difference=paired_difference(ours, theirs),
        p_value=permutation_test(ours, theirs).p_value if any(differences) else 1.0,
        wins=sum(one > 0 for one in differences),
        ties=sum(one == 0 for one in differences),
        losses=sum(one < 0 for one in differences),
        differences=differences,
        seeds=min(map(len, tables)),
    )


def rankings_table(results: Results) -> list[dict[str, Any]]:
    """What `rankings.parquet` holds: a row an entry of each board, ranked or not."""
    found: list[dict[str, Any]] = []
    for task in results.season.boards:
        ranked = {one.entry: one for one in results.ranks(task.name)}
        for row in results.board(task.name):
            place = ranked.get(row.id)
            found.append(
                {
                    "board": task.name,
                    "entry": row.id,
                    "name": row.entry.name,
                    "method": str(row.entry.method["name"]),
                    "badge": row.badge,
                    "copy_of": row.record and row.record.copy_of,
                    "rank_best": place and place.best,
                    "rank_worst": place and place.worst,
                    "mean": place and place.score.mean,
                    "low": place and place.score.low,
                    "high": place and place.score.high,
                    "seeds": row.seeds,
                }
            )
    return found


def write_rankings(results: Results, path: str | Path) -> Path:
    """Writes `rankings_table` as parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"rank_best": pa.int64(), "rank_worst": pa.int64(), "seeds": pa.int64()}
    kinds |= dict.fromkeys(("mean", "low", "high"), pa.float64())
    names = ("board", "entry", "name", "method", "badge", "copy_of")
    order = (*names, "rank_best", "rank_worst", "mean", "low", "high", "seeds")
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in order])
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


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MOST_RECORD + 1)
    if len(content) > _MOST_RECORD:
        raise ValueError(
            f"a record must have at most {_MOST_RECORD} bytes, got more in {path.name[:80]!r}; verify it again."
        )
    return content
