"""Selection with stated probabilities, and which steps are worth looking at, learned from those that were."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import StepSelector, inclusion_probabilities, pooled, systematic_sample

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


def test_it_knows_nothing_before_there_are_labels_of_both_kinds() -> None:
    selector = StepSelector()
    assert not selector.fitted
    assert selector.scores([(1.0,), (2.0,)]) == [1.0, 1.0]
    one_kind = selector.updated([((1.0,), 1.0), ((2.0,), 1.0)])
    assert not one_kind.fitted
    assert one_kind.scores([(1.0,)]) == [1.0]
    assert len(one_kind.examples) == 2


def test_it_learns_how_often_a_feature_goes_with_a_label() -> None:
    examples = [((1.0, 0.0), float(place % 4 > 0)) for place in range(80)]  # three in four
    examples += [((0.0, 0.0), float(place % 4 == 0)) for place in range(80)]  # one in four
    selector = StepSelector().updated(examples)
    assert selector.scores([(1.0, 0.0), (0.0, 0.0)]) == pytest.approx([0.75, 0.25])
    assert 0.25 < selector.scores([(0.5, 0.0)])[0] < 0.75


def test_scores_are_calibrated_where_the_logistic_model_is_not() -> None:
    draws = random.Random(0)
    examples = [
        ((x,), float(draws.random() < (0.1 if x < 0.5 else 0.9))) for x in (draws.random() for _ in range(800))
    ]
    selector = StepSelector().updated(examples)
    below, above = selector.scores([(0.25,), (0.75,)])
    assert below == pytest.approx(0.1, abs=0.06)
    assert above == pytest.approx(0.9, abs=0.06)


def test_it_keeps_the_latest_examples_only() -> None:
    selector = StepSelector(most=3).updated([((float(n),), float(n % 2)) for n in range(5)])
    assert [own for own, _ in selector.examples] == [(2.0,), (3.0,), (4.0,)]


def test_violators_are_pooled_by_hand() -> None:
    places, means = pooled([3.0, 1.0, 2.0, 4.0], [0.0, 0.0, 1.0, 1.0])
    assert places == (1.0, 2.0, 3.0, 4.0)
    assert means == (0.0, 0.5, 0.5, 1.0)
    assert pooled([1.0, 1.0, 2.0], [1.0, 0.0, 0.0]) == ((1.0, 2.0), pytest.approx((1 / 3, 1 / 3)))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12))
def test_the_pooled_function_rises_and_is_nearer_than_any_step(pairs: list[tuple[int, bool]]) -> None:
    places, labels = [float(place) for place, _ in pairs], [float(label) for _, label in pairs]
    at, means = pooled(places, labels)
    assert list(means) == sorted(means)

    def error(of: dict[float, float]) -> float:
        return sum((of[place] - label) ** 2 for place, label in zip(places, labels, strict=True))

    found = error(dict(zip(at, means, strict=True)))
    for low in (0.0, 0.3, 0.6):
        for high in (0.6, 1.0):
            for cut in at:
                assert found <= error({place: low if place < cut else high for place in at}) + 1e-9
