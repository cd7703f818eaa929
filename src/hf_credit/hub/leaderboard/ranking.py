"""Ranks as ranges: which verified entries of a board can be told apart at all."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hf_credit.evaluation.statistics import Interval, holm, permutation_test

ALPHA = 0.05
"""The chance of any false order anywhere on a board, at most."""

_RESAMPLES = 10_000
_AT_ONCE = 1_000

Outcomes = Sequence[Sequence[float]]
"""Of each checkpoint, its outcome on each secret task: [checkpoints][tasks], tasks in one order for all entries."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A row of a board.

    Attributes:
        entry: its id.
        best, worst: the range of its rank: 1 + how many are surely better, and how many are not surely worse.
        score: the mean over checkpoints and tasks, with its 95 % interval over both.
        seeds: how many training seeds; of one, nothing is known of the method beyond this checkpoint.
        ties: the ids of those that it cannot be told from.
    """

    entry: str
    best: int
    worst: int
    score: Interval
    seeds: int
    ties: tuple[str, ...]

    @property
    def rank(self) -> str:
        """Such as `1`, or `2-4`."""
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"


def rank(outcomes: Mapping[str, Outcomes], alpha: float = ALPHA, resamples: int = _RESAMPLES) -> list[Ranked]:
    """The entries of a board with the ranges of their ranks, the highest mean first.

    Every pair is compared task by task, on the mean over each one's checkpoints, by the paired permutation test
    (`hf_credit.evaluation.statistics.permutation_test`), and the p-values of all pairs are corrected together by Holm.
    With n entries, of which b are significantly better than an entry and w significantly worse, its rank is one of

        1 + b, ..., n - w

    so that all these statements together hold with a probability of at least 1 - alpha, of these checkpoints on such
    tasks. What other training seeds would do is in the interval of the score, and only where there are several.

    Args:
        outcomes: of each entry, by its id.
        alpha: in (0, 1).
        resamples: of each test and interval, at least; more where there are so many pairs that Holm needs them.

    Raises:
        ValueError: entries were played on different numbers of tasks, or fewer than two.
    """
    tables = {name: np.asarray(own, dtype=np.float64) for name, own in outcomes.items()}
    if len({table.shape[1] if table.ndim == 2 else -1 for table in tables.values()}) > 1:
        raise ValueError(
            "entries of a board must be played on the same tasks, got different numbers; verify them again."
        )
    means = {name: table.mean(axis=0) for name, table in tables.items()}
    pairs = list(itertools.combinations(means, 2))
    drawn = max(resamples, round(4 * len(pairs) / alpha))
    p_values = [_p_value(means[a], means[b], drawn) for a, b in pairs]
    better: dict[str, set[str]] = {name: set() for name in means}  # than whom it is
    for (a, b), p in zip(pairs, holm(p_values) if pairs else (), strict=True):
        if p <= alpha:
            first, second = (a, b) if means[a].mean() > means[b].mean() else (b, a)
            better[first].add(second)
    rows = []
    for name, table in tables.items():
        above = {other for other in means if name in better[other]}
        rows.append(
            Ranked(
                entry=name,
                best=1 + len(above),
                worst=len(means) - len(better[name]),
                score=score_interval(table, resamples=resamples),
                seeds=len(table),
                ties=tuple(sorted(set(means) - above - better[name] - {name})),
            )
        )
    return sorted(rows, key=lambda row: (-row.score.mean, row.entry))


def score_interval(
    outcomes: Outcomes | NDArray[np.float64], confidence: float = 0.95, resamples: int = _RESAMPLES, seed: int = 0
) -> Interval:
    """The mean over checkpoints and tasks, and its bootstrap interval over both.

    Each resample draws checkpoints and tasks with replacement, independently of each other, and takes the mean over
    the drawn rows and columns (the pigeonhole bootstrap: Owen, Annals of Applied Statistics 1, 2007). With one
    checkpoint only tasks are drawn.

    Args:
        outcomes: [checkpoints][tasks].
        confidence: in (0, 1).
        resamples: at least 1.
        seed: of the drawing.

    Returns:
        With `n` the number of tasks.

    Raises:
        ValueError: there are fewer than two tasks, or no checkpoint.
    """
    table = np.asarray(outcomes, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        raise ValueError(f"a score needs a checkpoint and two tasks, got outcomes of shape {table.shape}; play more.")
    draws = np.random.default_rng(seed)
    rows, columns = table.shape
    parts = []
    for first in range(0, resamples, _AT_ONCE):
        count = min(_AT_ONCE, resamples - first)
        # How often each is drawn, which is all that a mean needs.
        kept = draws.multinomial(rows, [1 / rows] * rows, size=count) / rows
        tasks = draws.multinomial(columns, [1 / columns] * columns, size=count) / columns
        parts.append(((kept @ table) * tasks).sum(axis=1))
    found = np.concatenate(parts)
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean=float(table.mean()), low=float(low), high=float(high), confidence=confidence, n=columns)


def _p_value(a: NDArray[np.float64], b: NDArray[np.float64], resamples: int) -> float:
    return 1.0 if np.array_equal(a, b) else permutation_test(a, b, resamples=resamples).p_value
