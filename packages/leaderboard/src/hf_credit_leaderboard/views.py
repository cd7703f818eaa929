"""Contents of the page and the command line, in which no text of an entry becomes code: names and texts go into text
cells and escaped HTML only."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from hf_credit.evaluation.results import range_of
from hf_credit.evaluation.statistics import Interval, paired_difference
from hf_credit.redaction import written_out
from hf_credit.rollouts import Ledger
from hf_credit_leaderboard.ranking import Ranked, paired_p
from hf_credit_leaderboard.records import BADGES
from hf_credit_leaderboard.results import SHORT, Results, Row

Columns = Sequence[tuple[str, str, Callable[[Row, Ranked | None], Any]]]
"""The name, the number format, and the function of a row and its rank, if any, that returns the value."""


def board_table(results: Results, board: str) -> tuple[Columns, list[list[Any]]]:
    """Returns the columns and the rows of a board, ranked rows first."""
    ranked = {one.entry: one for one in results.ranks(board)}

    def order(row: Row) -> tuple[float, str]:
        return (-ranked[row.id].score.mean if row.id in ranked else math.inf, row.id)

    rows = sorted(results.board(board), key=order)
    rank: Columns = [("rank", "", lambda row, place: place.rank if place else results.standing(row))]
    columns = (*rank, *BOARD_COLUMNS)
    return columns, [[value(row, ranked.get(row.id)) for _, _, value in columns] for row in rows]


def cells(columns: Columns, row: Sequence[Any]) -> list[str]:
    """Formats a row as text in which every character is visible."""
    return [
        "" if value is None else written_out(format(value, form if isinstance(value, int | float) else ""))
        for (_, form, _), value in zip(columns, row, strict=True)
    ]


def choices(results: Results, board: str, badge: str = BADGES[0]) -> list[tuple[str, str]]:
    """Returns the labels and ids of a board's entries with this badge or a higher one."""
    least = BADGES.index(badge)
    return [
        (f"{written_out(row.entry.name)} ({row.id[:SHORT]}, {row.badge})", row.id)
        for row in results.board(board)
        if BADGES.index(row.badge) >= least
    ]


def comparison_table(a: Row, b: Row) -> list[list[str]]:
    """Returns the names and values of a comparison of two verified entries, task by task on the secret tasks.

    Raises:
        ValueError: the two are the same entry, of different boards, or not both verified.
    """
    if a.id == b.id or a.entry.board != b.entry.board:
        raise ValueError("two entries of one board can be compared, got the same one or another board's; choose two.")
    tables = []
    for row in (a, b):
        if row.record is None or not row.record.secret:
            raise ValueError(f"entries that are compared must be verified, got {row.entry.name!r}, which is not.")
        tables.append(row.record.secret)
    of_a, of_b = ([fmean(column) for column in zip(*table, strict=True)] for table in tables)
    differences = [one - other for one, other in zip(of_a, of_b, strict=True)]
    difference = paired_difference(of_a, of_b, within=range_of("reward", [*of_a, *of_b]))
    seeds = min(map(len, tables))
    return [
        ["mean difference (A - B)", f"{difference.mean:+.4f}"],
        ["95 % interval", interval_text(difference)],
        ["p (paired permutation test)", f"{paired_p(of_a, of_b):.4g}"],
        ["tasks on which A is better", str(sum(one > 0 for one in differences))],
        ["ties", str(differences.count(0))],
        ["tasks on which B is better", str(sum(one < 0 for one in differences))],
        ["training seeds", "1, so the comparison is of these checkpoints only" if seeds == 1 else f"{seeds} or more"],
    ]


def provenance_table(row: Row) -> list[list[str]]:
    """Returns the names and values of an entry's fields, and of those of its record but for numbers that only a
    program reads."""
    record = {} if row.record is None else dataclasses.asdict(row.record)
    left_out = ("secret", "prints", "tokens")
    facts = {"entry": row.id, **dataclasses.asdict(row.entry), **record}
    return [
        [name.replace("_", " "), written_out(fact if isinstance(fact, str) else json.dumps(fact))]
        for name, fact in facts.items()
        if name not in left_out and fact not in (None, "", (), {})
    ]


def interval_text(interval: Interval) -> str:
    """Formats an interval, such as `[0.512, 0.731]`."""
    return f"[{interval.low:.3f}, {interval.high:.3f}]"


BOARD_COLUMNS: Columns = (
    ("name", "", lambda row, _: row.entry.name),
    ("mean", ".3f", lambda _, place: place and round(place.score.mean, 4)),
    ("95 % interval", "", lambda _, place: interval_text(place.score) if place else ""),
    ("seeds", "", lambda row, _: "1 (one seed)" if row.seeds == 1 else str(row.seeds)),
    ("badge", "", lambda row, _: row.badge),
    ("account", "", lambda row, _: ", ".join(sorted({one.repo.partition("/")[0] for one in row.entry.checkpoints}))),
    ("method", "", lambda row, _: str(row.entry.method["name"])),
    ("temperature", ".2g", lambda row, _: row.entry.sampled().temperature),
    ("tokens / episode", ",.1f", lambda row, _: row.record and row.record.tokens),
    ("training tokens", ",.0f", lambda row, _: row.entry.ledger and Ledger(**row.entry.ledger).tokens),
    ("parameters", ",.0f", lambda row, _: (row.record and row.record.parameters) or None),
    ("entry", "", lambda row, _: row.id[:SHORT]),
)
"""The columns of a board, after the rank. A phone shows the first four."""


def plain_cells(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the cells without dials, with exact critics and oracles."""
    return [one for one in cells if not one["dials"] and one["critic"] == "exact" and not one.get("oracle_error")]


def credit_table(cells: Sequence[Mapping[str, Any]], problem: str) -> tuple[list[str], list[list[Any]]]:
    """Returns the columns and the rows of what the bench measured in a problem, the least cost first: of each method
    the exact advantage's cost of signal as a share of its own, the angle of its gradient from the true one in degrees,
    and the mean area under its learning curves.
    """
    of_problem = [cell for cell in plain_cells(cells) if cell["problem"] == problem and cell["refused"] is None]
    exact = next((cell["trace"] for cell in of_problem if cell["method"] == "exact_advantage"), None)
    rows = [
        [
            written_out(cell["method"]),
            exact / cell["trace"] if exact and cell["trace"] else None,
            cell["angle"],
            fmean(cell["areas"]) if cell["areas"] else None,
        ]
        for cell in sorted(of_problem, key=lambda cell: (cell["trace"] or math.inf, cell["method"]))
    ]
    return ["method", "of the exact", "angle", "learned"], rows
