"""What is remembered of streams of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import Moment, Moments

NUMBERS = st.lists(st.floats(-1, 1), min_size=1, max_size=6)


def test_the_first_batch_is_taken_as_it_is_and_the_next_is_averaged_in():
    first = Moments().updated({"a": [0.0, 1.0]}, decay=0.9)
    assert first.of("a") == Moment(mean=0.5, variance=0.25, seen=2)
    second = first.updated({"a": [1.0, 1.0, 1.0]}, decay=0.9)
    # The batch's own variance is 0, though its mean is far from the remembered one.
    assert second.of("a") == Moment(mean=pytest.approx(0.55), variance=pytest.approx(0.225), seen=5)


def test_streams_are_remembered_apart_and_an_empty_batch_changes_nothing():
    known = Moments().updated({"a": [1.0], "b": [2.0]}, 0.5)
    assert known.updated({"a": [], "c": []}, 0.5) == known
    assert known.updated({"a": [3.0]}, 0.5).of("b") == known.of("b") == Moment(2.0, 0.0, 1)
    assert known.of("c") == Moment(0.0, 0.0, 0)


def test_a_small_variance_can_stand_for_a_deviation_of_one():
    assert Moment(0.0, 0.25, 4).deviation(unit_below=0.0) == 0.5
    assert Moment(0.0, 1e-6, 4).deviation(unit_below=1e-6) == 1.0
    assert Moment(0.0, 2e-6, 4).deviation(unit_below=1e-6) == pytest.approx(2e-6**0.5)
    assert Moment(0.0, 0.0, 4).deviation(unit_below=0.0) == 1.0


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.floats(0, 0.99))
def test_the_average_is_the_weighted_sum_of_batch_moments(batches, decay):
    moments = Moments()
    for batch in batches:
        moments = moments.updated({"a": batch}, decay)
    weights = [(1 - decay) * decay ** (len(batches) - 1 - place) for place in range(len(batches))]
    weights[0] = decay ** (len(batches) - 1)
    means = [sum(batch) / len(batch) for batch in batches]
    assert moments.of("a").mean == pytest.approx(sum(w * m for w, m in zip(weights, means, strict=True)), abs=1e-9)
    assert moments.of("a").seen == sum(map(len, batches))


@given(NUMBERS, NUMBERS)
def test_with_a_decay_of_zero_only_the_last_batch_counts(first, last):
    both = Moments().updated({"a": first}, 0.0).updated({"a": last}, 0.0)
    alone = Moments().updated({"a": last}, 0.0)
    assert (both.means, both.variances) == (pytest.approx(alone.means), pytest.approx(alone.variances))
