"""Who carries a team."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import free_rider_index, vote_contribution


def test_the_index_is_the_share_of_credit_without_contribution():
    assert free_rider_index([1.0, 0.5, -1.0], [0.4, 0.0, -0.2]) == pytest.approx(1 / 3)
    assert free_rider_index([1.0, 1.0], [0.1, 0.2]) == 0.0
    assert math.isnan(free_rider_index([-1.0], [0.5]))
    assert math.isnan(free_rider_index([], []))


def test_numbers_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="credits and contributions must have the same length, got 1 and 2; "):
        free_rider_index([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="must be finite, got inf; "):
        free_rider_index([math.inf], [1.0])


def test_votes_of_two_right_voters_and_a_wrong_one():
    found = vote_contribution([["4", "4", "5"]], ["4"])
    assert (found.accuracy, found.voters, found.contributions) == (1.0, [1.0, 1.0, 0.0], [0.5, 0.5, 0.0])
    # The third voter turns a right answer into a tie after one of the others, in a third of all orders.
    assert found.shapley == pytest.approx([7 / 12, 7 / 12, -1 / 6])
    assert (found.tied, found.abstained) == (0.0, 0.0)


def test_means_are_over_instances():
    found = vote_contribution([["4", None], ["4", "5"]], ["4", "5"], ties="none")
    assert found.accuracy == 0.5
    # The first instance needs its first voter; in the second, each voter alone would resolve a tie that scores 0.
    assert found.contributions == [0.5 * (1 + (0 - 1)), 0.5 * (0 + (0 - 0))]
    assert (found.tied, found.abstained) == (0.5, 0.25)


def test_uneven_votes_are_refused():
    with pytest.raises(ValueError, match="got 2 and 1 instances with 1, 2 voters; "):
        vote_contribution([["a"], ["a", "b"]], ["a"])
    with pytest.raises(ValueError, match="got 0 and 0 instances with no voters; "):
        vote_contribution([], [])
    with pytest.raises(ValueError, match="ties must be one of"):
        vote_contribution([["a"]], ["a"], ties="last")
