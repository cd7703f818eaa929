"""The disagreement of scores and outcomes against numbers worked out by hand, a brute force and laws."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import disagreement, sure_share

Episodes = list[tuple[float, float, int]]


def found(episodes: Episodes) -> tuple[float, float]:
    scores, outcomes, groups = (torch.tensor(one) for one in zip(*episodes, strict=True))
    return disagreement(scores, outcomes, groups)


def episodes(levels: int) -> st.SearchStrategy[Episodes]:
    """Scores, outcomes of so many levels, and groups; few scores, so that there are ties."""
    one = st.tuples(st.integers(0, 4).map(float), st.integers(1, levels).map(float), st.integers(0, 2))
    return st.lists(one, min_size=1, max_size=9)


def test_each_success_is_compared_with_all_failures_of_its_group() -> None:
    # Of the four pairs one success is behind one failure, and one has the score of the other: 3/2 of 4.
    group = [(1.0, 1.0, 0), (0.5, 1.0, 0), (1.0, 0.0, 0), (0.0, 0.0, 0)]
    assert found(group) == (0.75, 2.0)
    assert found([*group, (0.2, 1.0, 7), (0.1, 0.0, 7), (0.3, 0.0, 7)]) == (0.75 + 0.5, 3.0)


def test_three_outcomes_are_three_comparisons_of_two() -> None:
    # Three pairs, of which each episode has two: n = 3/2. One pair is the wrong way round.
    assert found([(0.0, 0.0, 0), (2.0, 0.5, 0), (1.0, 1.0, 0)]) == (pytest.approx(0.5), 1.5)


def test_equal_outcomes_say_nothing() -> None:
    assert found([(0.0, 1.0, 0), (1.0, 1.0, 0), (1.0, 0.0, 1)]) == (0.0, 0.0)


@given(episodes(levels=2))
def test_two_outcomes_give_the_mean_over_pairs_for_each_of_the_rarer(given_episodes: Episodes) -> None:
    against = comparisons = 0.0
    for group in {own for _, _, own in given_episodes}:
        won, lost = ([x for x, worth, own in given_episodes if (own, worth) == (group, level)] for level in (2.0, 1.0))
        pairs = list(itertools.product(won, lost))
        if pairs:
            wrong = sum((x < y) + (x == y) / 2 for x, y in pairs) / len(pairs)
            against += wrong * min(len(won), len(lost))
            comparisons += min(len(won), len(lost))
    assert found(given_episodes) == (pytest.approx(against), comparisons)


@given(episodes(levels=3))
def test_only_the_order_of_scores_counts_and_the_opposite_one_disagrees_by_the_rest(given_episodes: Episodes) -> None:
    against, comparisons = found(given_episodes)
    assert found([(x**3 + 7, worth, own) for x, worth, own in given_episodes]) == (against, comparisons)
    opposite, _ = found([(-x, worth, own) for x, worth, own in given_episodes])
    assert opposite == pytest.approx(comparisons - against)


def test_unknown_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="scores and outcomes must be finite"):
        found([(float("nan"), 1.0, 0)])


def test_the_sure_share_of_a_half_in_four_is_that_of_wilsons_interval() -> None:
    # Two of four: [0.150, 0.850], as in tables; 0.150 is 30 % of 0.5.
    assert sure_share(2.0, 4.0) == pytest.approx(0.300, abs=5e-4)
    assert sure_share(0.0, 0.0) == sure_share(0.0, 100.0) == 0.0


@given(share=st.floats(0.01, 1), comparisons=st.floats(0.5, 1e6))
def test_the_lower_end_is_where_the_estimate_is_as_far_as_the_interval_reaches(
    share: float, comparisons: float
) -> None:
    low = share * sure_share(share * comparisons, comparisons)
    assert 0 < low < share
    # The score test at the lower end: (d - p)^2 = q^2 p (1 - p) / n.
    assert (share - low) ** 2 == pytest.approx(1.959964**2 * low * (1 - low) / comparisons, rel=1e-6)
    assert sure_share(2 * share * comparisons, 2 * comparisons) > low / share
