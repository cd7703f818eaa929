"""What a finished policy leaves behind, and where to find it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finished_cells import load


@dataclass(frozen=True)
class Cells:
    """Finished cells by game, arm and seed."""

    cells: tuple[Mapping[str, Any], ...]

    def find(self, game: str, arm: str) -> dict[int, Mapping[str, Any]]:
        """The cells of an arm by seed."""
        return {cell["seed"]: cell for cell in self.cells if (cell["game"], cell["arm"]) == (game, arm)}

    def seeds(self, game: str, arms: Iterable[str]) -> list[int]:
        """The seeds for which every one of these arms is finished."""
        finished = [set(self.find(game, arm)) for arm in arms]
        return sorted(set.intersection(*finished))

    def means(self, game: str, arm: str, column: str, seeds: Sequence[int]) -> list[float]:
        """One number a seed: the mean over the held-out tasks to which the column applies."""
        found = self.find(game, arm)
        return [mean(found[seed]["scores"][column]) for seed in seeds]


def read_cells(paths: Iterable[Path]) -> Cells:
    """The cells in some files."""
    return Cells(tuple(load(paths)))


def mean(values: Sequence[float | None]) -> float:
    """The mean of the numbers that are there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known)
