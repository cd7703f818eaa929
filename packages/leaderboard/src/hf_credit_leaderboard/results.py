"""The listed entries of a season, read from its dataset of results, with ranks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_credit.redaction import redacted
from hf_credit.safe_io import read_text
from hf_credit_leaderboard.entries import Entry, read_entry
from hf_credit_leaderboard.ranking import Ranked, rank
from hf_credit_leaderboard.records import SELF_REPORTED, VERIFIED, Record, record_path
from hf_credit_leaderboard.seasons import Season

SHORT = 8
"""Digits of an entry's id on a page."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A listed entry.

    Attributes:
        id: the id of the entry.
        entry: the claim.
        record: the verification result; `None` before verification.
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
        """The number of training seeds."""
        return len(self.entry.checkpoints)


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity, so that ranks are computed once
class Results:
    """The listed entries of a season.

    Attributes:
        season: the season.
        rows: the entries, in the order of their ids.
        cells: the benchmark cells that the season names, as `hf_credit_bench.load_cells` returns them.
        problems: one sentence for each file that could not be read, and whose entry `rows` therefore lacks.
    """

    season: Season
    rows: tuple[Row, ...]
    cells: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()

    def board(self, name: str) -> list[Row]:
        """Returns the rows of one board."""
        return [row for row in self.rows if row.entry.board == name]

    def row(self, name: str) -> Row:
        """Returns the row with this id.

        Raises:
            ValueError: no entry has it.
        """
        for row in self.rows:
            if row.id == name:
                return row
        raise ValueError(f"an entry must be listed, got {name[:40]!r}, which is not; choose one of the board.")

    def standing(self, row: Row) -> str:
        """Returns why an entry has no rank, in a few words; "" if it has one."""
        if row.record is None or row.badge != VERIFIED:
            return "not verified"
        if row.record.copy_of is not None:
            return f"copy of {row.record.copy_of[:SHORT]}"
        if not row.record.ranked_in(self.season):
            return "unknown template"
        ranked = (one.record for one in self.rows if one.record and one.record.ranked_in(self.season))
        return next((f"replaced by {one.entry[:SHORT]}" for one in ranked if row.id in one.related), "")

    def ranks(self, board: str) -> list[Ranked]:
        """Returns the ranks of a board's entries that have one (`standing`)."""
        return _ranks(self, board)


def read_results(folder: str | Path, season: Season) -> Results:
    """Reads the results in a folder. An invalid file becomes a problem, not an error.

    Args:
        season: the season whose entries are read; entries of other seasons are skipped.
    """
    folder = Path(folder)
    rows, problems = [], []
    for path in sorted((folder / "entries").glob("*.json")):
        try:
            name, entry = read_entry(path)
            if entry.season != season.name:
                continue
            if path.stem != name:
                raise ValueError("an entry must have its digest as its name, got another name.")
            season.board(entry.board)
            record_file = folder / record_path(name)
            record = Record.read(read_text(record_file).encode(), season) if record_file.is_file() else None
            if record is not None and (record.entry, record.board) != (name, entry.board):
                raise ValueError("a record must be that of the entry in its file name, got another entry's.")
            rows.append(Row(id=name, entry=entry, record=record))
        except Exception as error:  # whatever the file of a stranger raises
            problems.append(f"{path.stem[:40]}: {str(error)[:300]}")
    return Results(season=season, rows=tuple(rows), problems=tuple(problems))


def rankings_table(results: Results) -> list[dict[str, Any]]:
    """Returns every entry of each board, ranked or not, as a row of plain values."""
    found = []
    for board in results.season.tasks:
        places = {place.entry: vars(place) | vars(place.score) for place in results.ranks(board.name)}
        for row in results.board(board.name):
            place = places.get(row.id, {})
            named: dict[str, Any] = {"board": board.name, "entry": row.id, "name": row.entry.name}
            named |= {"method": str(row.entry.method["name"]), "badge": row.badge}
            named |= {"copy_of": row.record and row.record.copy_of}
            ranks = {"rank_best": place.get("best"), "rank_worst": place.get("worst")}
            ranks |= {name: place.get(name) for name in ("mean", "low", "high")}
            found.append({name: redacted(value) for name, value in {**named, **ranks, "seeds": row.seeds}.items()})
    return found


@functools.lru_cache(maxsize=64)
def _ranks(results: Results, board: str) -> list[Ranked]:
    verified = {row.id: row.record.secret for row in results.board(board) if row.record and not results.standing(row)}
    return rank(verified) if verified else []
