from __future__ import annotations

import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.diagnostics import influence, influence_by_chance, response_symbol

ALPHA = 1e-2
messages = st.sampled_from(["a", "b", "c", None])
buckets = st.lists(st.lists(messages, min_size=1, max_size=4), min_size=2, max_size=4)


def sha(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()[:16]


def test_the_symbol_of_a_message() -> None:
    assert response_symbol("abc") == "a9993e364706816a"  # SHA-1 of "abc" as FIPS 180 gives it
    assert response_symbol("  two\n\twords ") == sha("two words")
    assert response_symbol("ﬁne ①") == sha("fine 1")  # NFKC
    assert response_symbol("x" * 300) == sha("x" * 256) == response_symbol("x" * 256)
    assert response_symbol(" " * 10 + "x" * 256 + "tail") == sha("x" * 256)  # trimmed before it is cut


@pytest.mark.parametrize("message", [None, "", " \n\t ", "　"])
def test_a_missing_message_is_empty(message) -> None:
    assert response_symbol(message) == "EMPTY"


def test_half_of_a_surrogate_pair_has_a_symbol() -> None:
    assert len(response_symbol("\ud83d")) == 16


def test_two_candidates_that_determine_the_response_by_hand() -> None:
    # One symbol each, two replays each, two active symbols: p = 2.01 / 2.02 and 0.01 / 2.02; p(y) = 1/2.
    high, low = 2.01 / 2.02, 0.01 / 2.02
    expected = high * math.log(high / 0.5) + low * math.log(low / 0.5)
    found = influence([[["a", "a"], ["b", "b"]]])
    assert found.mean == pytest.approx(expected)
    assert found.mean < math.log(2)


def test_candidates_have_equal_weights_for_any_number_of_replays() -> None:
    # Candidate 1: four times a; candidate 2: b once. Active: a, b. p(a|1) = 4.01/4.02, p(b|2) = 1.01/1.02.
    one, two = 4.01 / 4.02, 1.01 / 1.02
    p_a, p_b = (one + 1 - two) / 2, (1 - one + two) / 2
    expected = (
        one * math.log(one / p_a)
        + (1 - one) * math.log((1 - one) / p_b)
        + two * math.log(two / p_b)
        + (1 - two) * math.log((1 - two) / p_a)
    ) / 2
    assert influence([[["a"] * 4, ["b"]]]).mean == pytest.approx(expected)


@pytest.mark.parametrize(
    "bucket",
    [
        [["a", "b"], ["b", "a"], ["a", "b"]],
        [["same"], ["same"]],
        [[None, None], [None, None]],  # no response
    ],
)
def test_independent_responses_have_influence_0(bucket) -> None:
    assert influence([bucket]).mean == pytest.approx(0, abs=1e-12)


@given(buckets)
def test_it_is_between_0_and_the_logarithm_of_the_candidates(bucket) -> None:
    assert 0 <= influence([bucket]).mean <= math.log(len(bucket)) + 1e-12


@given(buckets)
def test_the_order_of_candidates_and_the_names_of_symbols_do_not_matter(bucket) -> None:
    renamed = [[None if m is None else f"said {m}" for m in own] for own in reversed(bucket)]
    assert influence([renamed]).mean == pytest.approx(influence([bucket]).mean, abs=1e-12)


def test_a_missing_response_is_a_symbol() -> None:
    assert influence([[[None, None], ["a", "a"]]]).mean == influence([[["b", "b"], ["a", "a"]]]).mean


def test_the_vocabulary_is_that_of_all_buckets() -> None:
    frequent = [["a"] * 4, ["b"] * 4]
    rare = [["c", "c"], ["d", "d"]]
    both = influence([frequent, rare], vocabulary=2)
    assert both.by_bucket[0] == influence([frequent]).mean
    assert both.by_bucket[1] == pytest.approx(0, abs=1e-12)  # both became OTHER
    assert influence([frequent, rare], vocabulary=3).by_bucket[1] > 0.5  # one of them did


def test_of_equally_frequent_symbols_the_first_in_order_are_kept() -> None:
    first, second, third = sorted("cde", key=sha)
    assert influence([[[second], [third]], [[first]]], vocabulary=1).mean == pytest.approx(0, abs=1e-12)
    assert influence([[[first], [third]], [[second]]], vocabulary=1).mean > 0.5


def test_empty_does_not_count_in_the_vocabulary() -> None:
    assert influence([[[None] * 9, ["a"]]], vocabulary=1).mean > 0.5
    # "a" is the only symbol that is kept, however frequent the missing responses are.
    assert influence([[[None] * 9, ["a"]], [["a"], ["b"]]], vocabulary=1).by_bucket[1] > 0.5


def test_a_bucket_of_one_candidate_is_left_out_and_counted() -> None:
    found = influence([[["a", "b"]], [["a"], ["b"]], [["a"], []]])
    assert [math.isnan(value) for value in found.by_bucket] == [True, False, True]
    assert found.mean == found.by_bucket[1]
    assert (found.buckets, found.alone) == (1, 2)


@pytest.mark.parametrize("responses", [[], [[["a"]]], [[[], []]]])
def test_without_anything_to_measure_it_is_nan(responses) -> None:
    assert math.isnan(influence(responses).mean)
    assert math.isnan(influence_by_chance(responses))


def test_if_all_responses_differ_influence_equals_chance() -> None:
    bucket = [[f"{candidate} {replay}" for replay in range(3)] for candidate in range(4)]
    assert influence([bucket]).mean > 0.8 * math.log(4)
    assert influence_by_chance([bucket]) == pytest.approx(influence([bucket]).mean)


def test_real_dependence_exceeds_chance() -> None:
    responses = [[["a"] * 8, ["b"] * 8]] * 3
    assert influence_by_chance(responses) < 0.2 < influence(responses).mean


@pytest.mark.parametrize("options", [{"vocabulary": 0}, {"alpha": 0}, {"alpha": math.inf}, {"alpha": math.nan}])
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(ValueError, match="influence needs vocabulary >= 1 and alpha > 0"):
        influence([[["a"], ["b"]]], **options)


def test_no_shuffle_is_refused() -> None:
    with pytest.raises(ValueError, match="shuffles must be at least 1, got 0"):
        influence_by_chance([], shuffles=0)
