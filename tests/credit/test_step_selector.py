"""Which steps are worth looking at, learned from those that were."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import StepSelector, pooled


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
