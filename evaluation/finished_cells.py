"""Reads and writes finished cells, and holds what tables of experiments share. Scripts of `evaluation/` import it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hf_credit.evaluation.statistics import Interval, mean_interval

CELLS_FILE = "cells.json"
Cell = Mapping[str, Any]
K = TypeVar("K", bound=Hashable)

EQUAL = 0.02
"""Differences that a deciding test finds count as none within this, from it on as one (registered beforehand)."""


def load(paths: Iterable[Path]) -> list[Cell]:
    """The cells in some files, each with one cell or a list of them."""
    values = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(paths)]
    return [cell for value in values for cell in (value if isinstance(value, list) else [value])]


def save(cells: Iterable[Cell], folder: Path) -> None:
    """Writes `cells.json`, from which all else follows, a cell a line."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in cells)
    (folder / CELLS_FILE).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read(paths: Iterable[Path], key: Callable[[Cell], K]) -> dict[K, dict[int, Cell]]:
    """The cells in some files, by what they are a seed of, and by seed."""
    found: dict[K, dict[int, Cell]] = {}
    for cell in load(paths):
        found.setdefault(key(cell), {})[cell["seed"]] = cell
    return found


def write(cells: Mapping[Any, Mapping[int, Cell]], folder: Path, markdown: str) -> None:
    """Writes `cells.json` and `results.md`."""
    save((cells[key][seed] for key in sorted(cells) for seed in sorted(cells[key])), folder)
    (folder / "results.md").write_text(markdown, encoding="utf-8")


def common_seeds(cells: Mapping[K, Mapping[int, Cell]], *keys: K) -> list[int]:
    """The seeds for which all of these are finished."""
    return sorted(set.intersection(*(set(cells.get(key, {})) for key in keys)))


def verdict(difference: Interval, p: float, behind: str = "refuted: behind") -> str:
    """What the rule that was written down beforehand says.

    Args:
        difference: of which more is better.
        p: of the test.
        behind: how to say that it was the other way round.
    """
    if p < 0.05 and abs(difference.mean) >= EQUAL:
        return "supported" if difference.mean > 0 else behind
    if difference.low > -EQUAL and difference.high < EQUAL:
        return "no difference"
    return "undecided"


def mean(values: Sequence[float]) -> str:
    """The mean of one number a seed with its interval (Student's t); nothing of none, the number itself of one."""
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return interval(mean_interval(values))


def interval(found: Interval, signed: bool = False) -> str:
    """A mean and its interval, with its sign where it is a difference."""
    sign = "+" if signed else ""
    return f"{found.mean:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def write_again(
    doc: str | None,
    results: Path,
    write_tables: Callable[[Iterable[Path], Path], None],
    arguments: Sequence[str] | None = None,
    script: str = "run.py",
) -> None:
    """The command line of a script that writes the tables again from committed cells.

    Args:
        doc: of the script.
        results: the folder of the committed ones.
        write_tables: of some files with cells, into a folder.
        arguments: the command line.
        script: what makes cells.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=results, help="holds cells.json; tables and plots go there")
    folder = parser.parse_args(arguments).results
    if not (folder / CELLS_FILE).is_file():
        parser.error(f"the results must hold {CELLS_FILE}, got {str(folder)!r} without; run {script} first.")
    write_tables([folder / CELLS_FILE], folder)
