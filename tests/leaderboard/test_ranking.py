"""Ranges of ranks and intervals, against cases worked out by hand and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_credit.evaluation.statistics import mean_interval
from hf_credit_leaderboard.ranking import paired_p, rank, score_interval


def test_entries_that_differ_on_every_task_are_told_apart_and_equal_ones_tie() -> None:
    tasks = 20
    table = {"best": [[1.0] * tasks], "twin": [[1.0] * tasks], "worst": [[0.0] * tasks]}
    found = {one.entry: one for one in rank(table)}
    assert {name: (one.best, one.worst) for name, one in found.items()} == {
        "best": (1, 2),
        "twin": (1, 2),
        "worst": (3, 3),
    }
    assert [found[name].rank for name in ("best", "worst")] == ["1-2", "3"]


def test_too_few_tasks_tell_nothing_apart() -> None:
    # Of 4 tasks the smallest two-sided p-value is 2 / 2^4 = 0.125.
    assert [(one.best, one.worst) for one in rank({"a": [[1.0] * 4], "b": [[0.0] * 4]})] == [(1, 2), (1, 2)]


def test_holms_correction_counts_all_pairs_of_the_board() -> None:
    # Of 6 tasks p = 2 / 2^6 = 0.031: significant alone, and no longer among the 3 pairs of three entries.
    a, b = [[1.0] * 6], [[0.0] * 6]
    assert [one.rank for one in rank({"a": a, "b": b})] == ["1", "2"]
    assert {one.rank for one in rank({"a": a, "b": b, "c": [[0.5] * 6]})} == {"1-3"}


def test_a_small_gap_shows_where_tasks_differ_much_more_than_entries_do() -> None:
    hard_to_easy = np.linspace(0, 0.9, 12)
    found = rank({"a": [hard_to_easy + 0.02], "b": [hard_to_easy]})
    assert [(one.entry, one.rank) for one in found] == [("a", "1"), ("b", "2")]


def test_seeds_are_averaged_before_tasks_are_paired() -> None:
    found = rank({"two": [[1.0] * 20, [0.0] * 20], "half": [[0.5] * 20]})
    assert [one.rank for one in found] == ["1-2", "1-2"]


def test_two_seeds_that_differ_have_students_wide_interval() -> None:
    # The means of the seeds are 0.4 and 0.6: t(0.975; 1) = 12.706 times 0.1, beyond the range.
    found = score_interval([[0.4] * 64, [0.6] * 64])
    assert (found.mean, found.low, found.high, found.n) == (pytest.approx(0.5), 0.0, 1.0, 64)
    # t(0.9; 1) = 3.0777
    assert score_interval([[0.4] * 64, [0.6] * 64], confidence=0.8).low == pytest.approx(0.5 - 0.30777, abs=1e-5)


def test_the_interval_covers_seeds_and_tasks() -> None:
    # The seeds' means are 0.4 and 0.6; the tasks' are four times 0.25, four times 0.75, and 0.5.
    hard, easy = ([0.15, 0.65], [0.35, 0.85])
    found = score_interval([hard * 4 + [0.4], easy * 4 + [0.6]], confidence=0.5)
    seeds, tasks = 0.1**2, (8 * 0.25**2 / 8) / 9
    freedom = (seeds + tasks) ** 2 / (seeds**2 + tasks**2 / 8)
    half = float(stats.t.ppf(0.75, freedom)) * math.sqrt(seeds + tasks)
    assert (found.low, found.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))


def test_with_one_seed_the_interval_is_over_tasks() -> None:
    outcomes = [0.0, 1.0, 1.0, 1.0]
    assert score_interval([outcomes]) == mean_interval(outcomes, within=(0.0, 1.0))


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_are_covered_as_often_as_is_said(seeds: int) -> None:
    draws = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        of_seed, of_task = draws.normal(0.5, 0.05, (seeds, 1)), draws.normal(0, 0.2, 64)
        found = score_interval(of_seed + of_task + draws.normal(0, 0.2, (seeds, 64)))
        hits += found.low <= 0.5 <= found.high
    assert hits / 400 >= 0.92


def test_equal_outcomes_do_not_make_a_score_certain() -> None:
    # 0 of 8, Wilson.
    found = score_interval([[0.0] * 8, [0.0] * 8])
    assert (found.mean, found.low, found.high) == (0.0, 0.0, pytest.approx(0.3244, abs=1e-4))


def test_entries_of_other_tasks_cannot_be_ranked() -> None:
    with pytest.raises(ValueError, match="the same tasks"):
        rank({"a": [[1.0, 0.0]], "b": [[1.0, 0.0, 1.0]]})


@given(st.lists(st.sampled_from([-1.0, -2 / 3, -0.5, -1 / 3, 0.0, 0.25, 1 / 3, 2 / 3, 1.0]), min_size=2, max_size=8))
def test_the_p_value_is_the_share_of_all_signs_with_a_sum_as_large(differences: list[float]) -> None:
    signs = itertools.product((-1, 1), repeat=len(differences))
    sums = [abs(np.dot(one, differences)) for one in signs]
    share = np.mean(np.array(sums) >= abs(sum(differences)) - 1e-9)
    assert paired_p(differences, [0.0] * len(differences)) == pytest.approx(share)


def test_a_p_value_has_no_least_one_that_more_pairs_would_exhaust() -> None:
    assert paired_p(np.ones(128), np.zeros(128)) == pytest.approx(2.0**-127)
    assert paired_p(np.linspace(0.1, 1, 4096), np.zeros(4096)) < 1e-300


def test_forty_entries_are_ranked_and_thirty_junk_ones_do_not_move_the_first() -> None:
    draws = np.random.default_rng(0)
    table = {f"junk {place}": (draws.random((1, 128)) < 0.2).astype(float) for place in range(30)}
    table |= {f"good {place}": draws.random((3, 128)) * 0.5 + 0.1 for place in range(9)}
    table["best"] = (draws.random((2, 128)) < 0.85).astype(float)
    first, *_ = rank(table)
    assert (first.entry, first.rank) == ("best", "1")
