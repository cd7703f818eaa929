"""What a page of `evaluation/` tells is what its committed results have, to the digits that it tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NUMBER = r"[+-]?\d*\.?\d+"
# A mean with its interval: .077 [.056, .098], or 5.0 points ([3.4, 6.7] over seeds).
INTERVAL = re.compile(rf"(?<![\w.])({NUMBER})(?: %| points)? \(?\[({NUMBER}), ({NUMBER})\]")
# Told of commits that the page names, whose results are there.
EARLIER = {
    "bench": [
        "+.096 [.051, .140]",
        "+.039 [.015, .063]",
        "-.144 [-.297, .009]",
        ".94 [.79, 1.13]",
        ".92 [.78, 1.08]",
        "1.04 [.86, 1.25]",
        "-.036 [-.129, .058]",
        ".172 [-.181, .526]",
        "-.050 [-.069, -.030]",
    ],
}
# Held by tests of their own: tests/bench/test_verdicts.py.
ELSEWHERE = {"bench": [".96 [.83, 1.2]"]}


def told(text: str) -> list[tuple[str, str, str]]:
    return INTERVAL.findall(" ".join(text.split()))


def intervals(value: Any) -> Iterator[tuple[float, float, float]]:
    """Every mean with its interval in data of JSON."""
    if isinstance(value, dict):
        ends = [value.get(name) for name in ("mean", "low", "high")]
        if all(isinstance(end, float | int) for end in ends):
            yield tuple(map(float, ends))
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from intervals(one)


def committed(folder: Path) -> list[tuple[float, float, float]]:
    """Every mean with its interval in the results of a page, data and tables."""
    found: list[tuple[float, float, float]] = []
    for path in sorted(folder.rglob("*.json")):
        found += intervals(json.loads(path.read_text(encoding="utf-8")))
    for path in sorted(folder.rglob("*.md")):
        if path.name != "README.md":
            found += [tuple(map(float, one)) for one in told(path.read_text(encoding="utf-8"))]
    return found


def rounds_to(known: tuple[float, float, float], said: tuple[str, str, str]) -> bool:
    """Whether a result is told, as it is or in per cent, of `a - b` or of `b - a`."""
    mean, low, high = known
    return any(
        all(
            abs(scale * value - float(text)) <= 0.5 * 10 ** -len(text.partition(".")[2]) + 1e-9
            for value, text in zip(ordered, said, strict=True)
        )
        for scale in (1, 100)
        for ordered in ((mean, low, high), (-mean, -high, -low))
    )


@pytest.mark.parametrize(("name", "least"), [("asynchronous", 3), ("bench", 12), ("c3", 15), ("trust", 6), ("vpr", 5)])
def test_every_interval_of_a_page_is_one_of_its_committed_results(root: Path, name: str, least: int) -> None:
    folder = root / "evaluation" / name
    exempt = {told(text)[0] for text in [*EARLIER.get(name, []), *ELSEWHERE.get(name, [])]}
    said = [one for one in told((folder / "README.md").read_text(encoding="utf-8")) if one not in exempt]
    known = committed(folder)
    assert len(said) >= least
    assert [one for one in said if not any(rounds_to(result, one) for result in known)] == []


def rows_of(page: str, header: str) -> dict[str, list[str]]:
    """The rows of the table with a header, by their first column, without bold and per cent."""
    lines = page.partition(header)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" *%") for cell in line.strip("|").split("|")] for line in lines]
    return {first: others for first, *others in cells}


def test_the_table_of_vpr_has_the_means_of_its_results(root: Path) -> None:
    folder = root / "evaluation" / "vpr"
    means = json.loads((folder / "results" / "results.json").read_text())["means"]
    found = {(one["game"], one["arm"]): one["scores"] for one in means}
    columns = {
        "Tic-Tac-Toe, return moving first": ("tic_tac_toe", "return_first", 1),
        "Tic-Tac-Toe, return moving second": ("tic_tac_toe", "return_second", 1),
        "Sudoku, success": ("sudoku", "success", 100),
        "Sudoku, completion": ("sudoku", "completion", 100),
        "Minesweeper, success": ("minesweeper", "success", 100),
        "Minesweeper, completion": ("minesweeper", "completion", 100),
    }
    rows = rows_of((folder / "README.md").read_text(encoding="utf-8"), "| | Base | OR | MC-PR | VPR |")
    assert rows.keys() == columns.keys()
    for name, (game, score, scale) in columns.items():
        values = [scale * found[game, arm][score]["mean"] for arm in ("Base", "OR", "MC-PR", "VPR")]
        assert rows[name] == [f"{value:.{1 if scale == 100 else 2}f}" for value in values], name


def test_the_table_of_c3_has_the_means_of_its_results(root: Path) -> None:
    folder = root / "evaluation" / "c3"
    scores = json.loads((folder / "results" / "results.json").read_text())["scores"]
    rows = rows_of((folder / "README.md").read_text(encoding="utf-8"), "| | expected score, held out |")
    assert rows.keys() <= scores.keys()
    for arm, (held_out, train, *_) in rows.items():
        assert [held_out, train] == [f"{scores[arm][split]['mean']:.3f}" for split in ("held_out", "train")], arm
