"""Selection with probabilities that are what they are said to be."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import inclusion_probabilities, systematic_sample

SCORES = st.lists(st.one_of(st.just(0.0), st.floats(1e-4, 10)), min_size=1, max_size=40)


@given(SCORES, st.integers(1, 12).map(float))
def test_as_many_are_expected_as_were_asked_for(scores, expected):
    found = inclusion_probabilities(scores, expected)
    assert sum(found) == pytest.approx(min(expected, len(scores)), rel=1e-6)
    assert all(min(0.15, expected / len(scores)) - 1e-12 <= one <= 1 for one in found)


@given(SCORES, st.integers(1, 12).map(float))
def test_a_higher_score_is_never_selected_less_often(scores, expected):
    found = inclusion_probabilities(scores, expected)
    ordered = [probability for _, probability in sorted(zip(scores, found, strict=True))]
    assert ordered == sorted(ordered)


def test_probabilities_are_in_proportion_between_floor_and_one():
    # c = 1/4: 0.25, 0.5, 0.75 sum to 1.5
    assert inclusion_probabilities([1.0, 2.0, 3.0], 1.5) == pytest.approx([0.25, 0.5, 0.75])


def test_the_floor_gives_way_where_it_would_select_too_many():
    assert inclusion_probabilities([1.0] * 100, 8.0) == pytest.approx([0.08] * 100)


def test_steps_without_a_score_make_up_for_the_rest():
    assert inclusion_probabilities([1.0, 0.0, 0.0, 0.0], 2.5) == pytest.approx([1.0, 0.5, 0.5, 0.5])
    assert inclusion_probabilities([0.0] * 4, 2.0) == pytest.approx([0.5] * 4)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_every_step_is_selected_exactly_as_often_as_its_probability_says(twelfths):
    """Over the twelve kinds of draw that the sums of twelfths can tell apart."""
    probabilities = [one / 12 for one in twelfths]
    draws = [systematic_sample(probabilities, (2 * kind + 1) / 24) for kind in range(12)]
    for place, one in enumerate(twelfths):
        assert Fraction(sum(place in draw for draw in draws), 12) == Fraction(one, 12)
    whole = sum(twelfths) / 12
    assert all(len(draw) in (math.floor(whole), math.ceil(whole)) for draw in draws)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1.0], 0.0), "expected number of selected steps must be above 0, got 0.0"),
        (([1.0], 1.0, 0.0), r"floor must be above 0, got 0.0"),
        (([math.nan], 1.0), "the score of a step must be a finite number, got nan"),
    ],
)
def test_what_cannot_be_selected_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        inclusion_probabilities(*arguments)


def test_draws_and_probabilities_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"the draw must be in \[0, 1\), got 1.0"):
        systematic_sample([0.5], 1.0)
    with pytest.raises(ValueError, match=r"a probability must be in \[0, 1\], got 1.5"):
        systematic_sample([1.5], 0.5)
