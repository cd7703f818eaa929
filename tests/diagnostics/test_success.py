from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.diagnostics import (
    mean_pass_at_k,
    pass_at_k,
    pass_at_k_by_instance,
)

numbers = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(numbers)
def test_it_is_the_share_of_choices_that_hold_a_correct_sample(case) -> None:
    samples, correct, k = case
    chosen = list(itertools.combinations(range(samples), k))
    assert pass_at_k(samples, correct, k) == pytest.approx(sum(min(one) < correct for one in chosen) / len(chosen))


@given(numbers)
def test_k_of_1_is_the_share_of_correct_samples(case) -> None:
    samples, correct, _ = case
    assert pass_at_k(samples, correct, 1) == pytest.approx(correct / samples)


@pytest.mark.parametrize(("samples", "correct", "k"), [(10, 1, 10), (10, 4, 7), (5, 5, 1), (1, 1, 1)])
def test_where_too_few_are_wrong_some_choice_is_always_right(samples, correct, k) -> None:
    assert pass_at_k(samples, correct, k) == 1


def test_it_is_stable_for_many_samples() -> None:
    million = 10**6
    assert pass_at_k(million, 1, 1) == pytest.approx(1e-6, rel=1e-12)
    assert pass_at_k(10**12, 1, 3) == pytest.approx(3e-12, rel=1e-12)
    exact = 1 - math.comb(2000 - 700, 10) / math.comb(2000, 10)
    assert pass_at_k(2000, 700, 10) == pytest.approx(exact, rel=1e-12)
    assert pass_at_k(million, 500_000, 500_000) == 1
    assert pass_at_k(million, 0, million) == 0


@pytest.mark.parametrize("case", [(0, 0, 1), (3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_numbers_out_of_range_are_refused(case) -> None:
    with pytest.raises(ValueError, match=r"pass@k needs 1 <= k <= samples and 0 <= correct <= samples, got k = "):
        pass_at_k(*case)


def test_the_mean_is_over_instances() -> None:
    scores = [[1, 0], [0, 0], [1, 1], [0, 1]]
    assert mean_pass_at_k(scores, 1) == pytest.approx(0.5)
    assert mean_pass_at_k(scores, 2) == pytest.approx(0.75)
    assert pass_at_k_by_instance(scores, 1) == pytest.approx([0.5, 0, 1, 0.5])


def test_attempts_that_could_not_be_scored_are_incorrect() -> None:
    assert mean_pass_at_k([[None, 1], [math.nan, 0]], 1) == pytest.approx(0.25)


def test_a_partial_score_is_correct_only_above_a_threshold() -> None:
    assert mean_pass_at_k([[0.5], [1.0]], 1) == pytest.approx(0.5)
    assert mean_pass_at_k([[0.5], [1.0]], 1, threshold=0.5) == 1
    assert mean_pass_at_k([[sum([0.1] * 10)], [0.999]], 1) == pytest.approx(0.5)  # the sum is 1 - 1.1e-16


def test_no_instance_and_too_large_a_k_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 instance, got none"):
        mean_pass_at_k([], 1)
    with pytest.raises(ValueError, match="got k = 2, 1 samples and 1 correct"):
        mean_pass_at_k([[1, 0], [1]], 2)
