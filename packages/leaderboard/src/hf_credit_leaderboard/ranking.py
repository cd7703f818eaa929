"""Ranks as ranges, from the significant differences between the verified entries of a board."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hf_credit.evaluation.results import range_of
from hf_credit.evaluation.statistics import Interval, holm, mean_interval
from hf_credit.optional_packages import needed

ALPHA = 0.05
"""The highest probability of any false order on a board (family-wise error rate)."""

_LEVELS = 840  # of a difference, on up to 128 tasks; a multiple of the numbers of seeds up to 8

Outcomes = Sequence[Sequence[float]]
"""The outcomes on the secret tasks, [checkpoints][tasks], with tasks in the same order for all entries."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The rank of an entry.

    Attributes:
        entry: the id of the entry.
        best, worst: the range of the rank: 1 + the number of significantly better entries, and the number of entries
            that are not significantly worse.
        score: the mean over checkpoints and tasks, with its 95 % interval over both.
    """

    entry: str
    best: int
    worst: int
    score: Interval

    @property
    def rank(self) -> str:
        """The rank as text, such as `1` or `2-4`."""
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"


def paired_p(a: ArrayLike, b: ArrayLike) -> float:
    """Returns the exact p-value of the two-sided paired permutation test that a and b do not differ.

    Each difference d_i = a_i - b_i has either sign with probability 1/2, so with signs s

        p = P(|sum_i s_i d_i| >= |sum_i d_i|)

    (Fisher, The Design of Experiments, 1935, section 21), in O(n^2) steps and without resamples, of which many pairs
    would need many. Differences are rounded to 1/840 of the largest, on n > 128 tasks to 1/12 or more finely; every
    sign is as likely as before, so the test remains exact.

    Args:
        a, b: n finite numbers each, of the same tasks.
    """
    differences = np.subtract(a, b)
    largest = np.abs(differences).max()
    if largest == 0:
        return 1.0
    levels = max(12, _LEVELS * 128 // max(128, len(differences)))
    steps = np.rint(differences / largest * levels).astype(np.int64)
    steps //= np.gcd.reduce(steps)
    sums = np.ones(1)  # the probability of each sum over a random half of the tasks
    for size in np.sort(np.abs(steps[steps != 0])):
        half, sums = sums / 2, np.zeros(len(sums) + size)
        sums[: len(half)] = half
        sums[size:] += half
    tail = (len(sums) - 1 - abs(int(steps.sum()))) // 2
    return min(1.0, 2 * float(sums[: tail + 1].sum()))


def rank(outcomes: Mapping[str, Outcomes]) -> list[Ranked]:
    """Returns the entries of a board with the ranges of their ranks, the highest mean first.

    Every pair is compared task by task, on the mean over each one's checkpoints, by the paired permutation test
    (`paired_p`), and the p-values of all pairs are corrected together by Holm, in the square of the entries times that
    of the tasks. With n entries, of which b are significantly better than an entry and w significantly worse, its rank
    is one of

        1 + b, ..., n - w.

    All these ranges together hold with a probability of at least 1 - `ALPHA`, for these checkpoints on such tasks. The
    interval of the score includes the variation over training seeds, if an entry has several.

    Args:
        outcomes: the outcomes of each entry, by id.

    Raises:
        ValueError: entries have different numbers of tasks, or fewer than two.
    """
    tables = {name: np.asarray(rows, dtype=np.float64) for name, rows in outcomes.items()}
    if len({table.shape[1] if table.ndim == 2 else -1 for table in tables.values()}) > 1:
        raise ValueError(
            "entries of a board must be played on the same tasks, got different numbers; verify them again."
        )
    means = {name: table.mean(axis=0) for name, table in tables.items()}
    pairs = list(itertools.combinations(means, 2))
    p_values = [paired_p(means[a], means[b]) for a, b in pairs]
    order = [pair if means[pair[0]].mean() > means[pair[1]].mean() else pair[::-1] for pair in pairs]
    beats = [pair for pair, p in zip(order, holm(p_values) if pairs else (), strict=True) if p <= ALPHA]
    ranked = []
    for name, table in tables.items():
        better, worse = {a for a, b in beats if b == name}, {b for a, b in beats if a == name}
        ranked.append(
            Ranked(
                entry=name,
                best=1 + len(better),
                worst=len(means) - len(worse),
                score=score_interval(table),
            )
        )
    return sorted(ranked, key=lambda one: (-one.score.mean, one.entry))


def score_interval(outcomes: Outcomes | NDArray[np.float64], confidence: float = 0.95) -> Interval:
    """Returns the mean over checkpoints and tasks with Student's interval over both; its `n` is the number of tasks.

    The variances of the two means add up, with the degrees of freedom of Welch and Satterthwaite (1946), and the ends
    are within the range of rewards. With one checkpoint it is `mean_interval` over the tasks.

    Args:
        outcomes: [checkpoints][tasks], with at least two tasks.
        confidence: in (0, 1).
    """
    table = np.asarray(outcomes, dtype=np.float64)
    within = range_of("reward", table.ravel().tolist()) or (-np.inf, np.inf)
    means = [table.mean(axis=1), table.mean(axis=0)]
    if len(table) == 1 or all(np.ptp(each) < 1e-9 for each in means):  # equal means do not tell their spread
        return mean_interval(table[0], confidence, within=within)
    parts = np.array([each.var(ddof=1) / len(each) for each in means])
    freedom = parts.sum() ** 2 / (parts**2 / (np.array(table.shape) - 1)).sum()
    law = needed("statistics need", "scipy.stats", "statistics").t
    half = float(law.ppf((1 + confidence) / 2, freedom)) * math.sqrt(parts.sum())
    low, high = np.clip([table.mean() - half, table.mean() + half], *within).tolist()
    return Interval(mean=float(table.mean()), low=low, high=high, confidence=confidence, n=table.shape[1])
