from __future__ import annotations

import dataclasses
import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_credit.evaluation.statistics import (
    SHARE,
    Interval,
    PermutationTest,
    clustered_interval,
    holm,
    mean_interval,
    paired_difference,
    permutation_test,
    stratified_paired_difference,
)

scores = st.lists(st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.0]), min_size=2, max_size=12)


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


# The interval of a mean


@pytest.mark.parametrize(("successes", "n"), [(0, 8), (1, 8), (3, 8), (8, 8), (2, 4), (0, 256), (200, 256)])
def test_the_interval_of_a_share_of_successes_is_wilsons(successes: int, n: int) -> None:
    # Another implementation of it.
    expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
    found = mean_interval([1.0] * successes + [0.0] * (n - successes), within=SHARE)
    assert (found.mean, found.n) == (successes / n, n)
    assert ends(found) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_equal_values_with_a_range_have_the_interval_of_a_value_that_did_not_occur() -> None:
    # q^2 / (4 + q^2) = 0.49: as 0 of 4, on both sides of the value.
    assert ends(mean_interval([0.5] * 4, within=SHARE)) == pytest.approx((0.255, 0.745), abs=1e-3)
    assert ends(mean_interval([1e-13, 0.0, 0.0], within=SHARE)) == pytest.approx((0.0, 0.5615), abs=1e-3)
    assert ends(mean_interval([-1.0] * 4, within=(-1.0, 1.0))) == pytest.approx((-1.0, -0.0202), abs=1e-3)
    assert ends(mean_interval([0.1] * 3, within=(0.0, math.inf))) == pytest.approx((0.1, 0.1))


@given(st.lists(st.floats(-2, 3), min_size=2, max_size=9), st.floats(0.5, 0.99))
def test_an_interval_stays_in_the_range_and_around_the_mean(values: list[float], confidence: float) -> None:
    found = mean_interval(values, confidence, within=(-2.0, 3.0))
    assert -2 <= found.low <= found.mean <= found.high <= 3
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.high > found.low


@pytest.mark.parametrize("n", [4, 8, 32])
def test_intervals_of_bounded_values_cover_their_mean(n: int) -> None:
    random = np.random.default_rng(n)
    draws = {0.3: lambda: random.random(n) < 0.3, 0.5: lambda: random.random(n), 0.9: lambda: random.beta(9, 1, n)}
    for mean, draw in draws.items():
        found = [mean_interval(draw(), within=SHARE) for _ in range(500)]
        assert np.mean([one.low <= mean <= one.high for one in found]) > 0.9


def test_values_outside_their_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"values must be within \[0, 1\], got 0 to 2; correct the range."):
        mean_interval([0.0, 2.0], within=SHARE)


def test_a_large_sample_has_the_interval_of_the_normal_law() -> None:
    values = np.random.default_rng(3).normal(loc=5, scale=2, size=2000)
    half = 1.959964 * values.std() / math.sqrt(2000)
    interval = mean_interval(values)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -7.3])
def test_equal_values_have_an_interval_of_width_zero(value: float) -> None:
    interval = mean_interval([value] * 7)
    assert interval.low == interval.mean == interval.high == pytest.approx(value)


@pytest.mark.parametrize("law", ["normal", "success or failure", "skewed"])
def test_about_95_of_100_intervals_hold_the_true_mean(law: str) -> None:
    random = np.random.default_rng(11)
    truth = {"normal": 2.0, "success or failure": 0.3, "skewed": 1.0}[law]
    hits = 0
    for _ in range(600):
        if law == "normal":
            sample = random.normal(truth, 3.0, size=60)
        elif law == "skewed":
            sample = random.exponential(truth, size=60)
        else:
            sample = random.random(60) < truth
        interval = mean_interval(sample)
        hits += interval.low <= truth <= interval.high
    assert 0.915 <= hits / 600 <= 0.975


# Few values


def test_of_three_values_the_interval_is_students() -> None:
    # mean 2, s = 1, t(0.975; 2) = 4.30265
    half = 4.30265273 / math.sqrt(3)
    interval = mean_interval([1, 2, 3])
    assert (interval.mean, *ends(interval), interval.n) == pytest.approx((2, 2 - half, 2 + half, 3))


@pytest.mark.parametrize("law", ["normal", "uniform", "difference of two waits"])
@pytest.mark.parametrize("n", [5, 7, 10])
def test_95_of_100_intervals_of_a_few_seeds_hold_the_true_mean(law: str, n: int) -> None:
    random = np.random.default_rng(14)
    draw = {
        "normal": lambda: random.normal(2.0, 3.0, size=n),
        "uniform": lambda: random.uniform(0.0, 4.0, size=n),
        "difference of two waits": lambda: 2.0 + random.exponential(size=n) - random.exponential(size=n),
    }[law]
    intervals = [mean_interval(draw()) for _ in range(2000)]
    hits = np.mean([interval.low <= 2.0 <= interval.high for interval in intervals])
    assert 0.93 <= hits <= 0.975


def test_95_of_100_intervals_of_small_strata_hold_the_true_mean() -> None:
    random = np.random.default_rng(16)
    strata = [0] * 5 + [1] * 5 + [2] * 8
    effect, spread = (np.array(each)[strata] for each in ([-4.0, 1.0, 6.0], [1.0, 2.0, 4.0]))
    hits = []
    for _ in range(2000):
        interval = stratified_paired_difference(effect + spread * random.normal(size=18), np.zeros(18), strata)
        hits.append(interval.low <= effect.mean() <= interval.high)
    assert 0.93 <= np.mean(hits) <= 0.975


# Paired differences


def test_pairing_removes_the_spread_between_units() -> None:
    interval = paired_difference([11, 52, 93], [10, 51, 92])
    assert (interval.mean, *ends(interval)) == (1.0, 1.0, 1.0)


def test_a_paired_difference_is_the_mean_interval_of_the_differences() -> None:
    a, b = [1.0, 4.0, 2.0, 8.0], [0.5, 4.5, 2.0, 6.0]
    assert paired_difference(a, b) == mean_interval([0.5, -0.5, 0.0, 2.0])


def test_changing_sides_changes_the_sign_of_the_mean() -> None:
    a, b = [1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0]
    assert paired_difference(a, b).mean == 0.5
    assert paired_difference(b, a).mean == -0.5


# Paired differences within strata


def test_spread_between_strata_does_not_widen_the_interval() -> None:
    a, b = [1, 1, 5, 5], [0, 0, 0, 0]
    stratified = stratified_paired_difference(a, b, ["x", "x", "y", "y"])
    assert (stratified.mean, *ends(stratified)) == (3.0, 3.0, 3.0)
    assert paired_difference(a, b).low < 0


def test_a_stratum_weighs_as_much_as_it_has_pairs() -> None:
    # Stratum y has 4 and 8, s = sqrt(8), weight 2/5, and 1 degree of freedom: t = 12.7062; stratum x is always 0.
    interval = stratified_paired_difference([0, 4, 0, 8, 0], [0] * 5, list("xyxyx"))
    assert (interval.mean, interval.high - 2.4) == pytest.approx((2.4, 12.7062 * 0.4 * 2.0), rel=1e-4)


@given(scores)
def test_one_stratum_is_the_paired_difference(values: list[float]) -> None:
    zeros = [0.0] * len(values)
    found = stratified_paired_difference(values, zeros, ["all"] * len(values))
    assert found == paired_difference(values, zeros)


def test_about_95_of_100_stratified_intervals_hold_the_true_difference() -> None:
    random = np.random.default_rng(12)
    strata = np.repeat([0, 1, 2], 25)
    effect = np.array([-4.0, 1.0, 6.0])[strata]  # mean 1
    hits = 0
    for _ in range(600):
        unit = random.normal(0, 10, size=75)
        after = unit + effect + random.normal(0, 1, size=75)
        interval = stratified_paired_difference(after, unit, strata.tolist())
        hits += interval.low <= 1.0 <= interval.high
    assert 0.915 <= hits / 600 <= 0.975


# Permutation test


def test_three_differences_of_one_sign_leave_two_of_eight_patterns_as_far_out() -> None:
    assert permutation_test([1, 2, 3], [0, 0, 0]) == PermutationTest(mean=2.0, p_value=0.25, exact=True, n=3)


def test_no_difference_has_p_value_one() -> None:
    assert permutation_test([1, 1, 0, 1], [1, 1, 0, 1]).p_value == 1.0
    assert permutation_test([1, 0], [0, 1]).p_value == 1.0


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_the_exact_test_counts_every_sign_pattern(differences: list[int]) -> None:
    patterns = list(itertools.product([-1, 1], repeat=len(differences)))
    far = sum(
        abs(sum(sign * value for sign, value in zip(pattern, differences, strict=True))) >= abs(sum(differences))
        for pattern in patterns
    )
    test = permutation_test(differences, [0] * len(differences))
    assert test.exact
    assert test.p_value == pytest.approx(far / len(patterns))


def test_drawn_patterns_approximate_the_full_count() -> None:
    differences = np.array([3, -1, 4, 1, -5, 9, 2, -6, 5, 3, 5, -8, 9, 7])
    patterns = np.array(list(itertools.product([-1, 1], repeat=14)))
    full = np.mean(np.abs(patterns @ differences) >= abs(differences.sum()))
    test = permutation_test(differences, np.zeros(14), resamples=10_000)
    assert not test.exact
    assert test.p_value == pytest.approx(full, abs=0.015)


def test_a_drawn_p_value_is_never_zero() -> None:
    assert permutation_test(np.ones(40), np.zeros(40), resamples=999).p_value == pytest.approx(2 / 1000)


def test_under_no_difference_p_values_are_uniform() -> None:
    random = np.random.default_rng(13)
    p_values = np.array([permutation_test(random.normal(size=8), random.normal(size=8)).p_value for _ in range(1000)])
    for alpha in (0.0625, 0.25, 0.5):
        assert np.mean(p_values <= alpha) == pytest.approx(alpha, abs=3.5 * math.sqrt(alpha * (1 - alpha) / 1000))


# Many tests at once


def test_holm_on_a_worked_example() -> None:
    # In order 0.005 * 4 = 0.02, 0.01 * 3 = 0.03, 0.03 * 2 = 0.06, then 0.04 * 1 = 0.04 raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_holm_leaves_one_test_alone_and_stops_at_one() -> None:
    assert holm([0.2]) == (0.2,)
    assert holm([0.9, 0.6]) == (1.0, 1.0)


@pytest.mark.parametrize("m", [2, 3, 8, 40])
def test_holm_is_the_step_down_formula(m: int) -> None:
    p_values = np.random.default_rng(m).random(m) ** 3
    ranked = sorted(p_values)
    expected = [min(1.0, max((m - i) * p for i, p in enumerate(ranked) if p <= value)) for value in p_values]
    assert holm(p_values) == pytest.approx(expected)


# Results as text, and invalid arguments


def test_results_are_readable_values() -> None:
    interval = Interval(mean=0.125, low=0.03, high=0.2, confidence=0.95, n=40)
    assert str(interval) == "0.125 [0.030, 0.200] (95% interval, n = 40)"
    assert str(PermutationTest(mean=2.0, p_value=0.25, exact=True, n=3)) == "2.000 (p = 0.25, exact, n = 3)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        interval.mean = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_named_with_its_index(bad: float) -> None:
    with pytest.raises(ValueError, match=r"values must be finite numbers, got (nan|-?inf) at index 1; "):
        mean_interval([0.0, bad, 1.0])
    with pytest.raises(ValueError, match="b must be finite numbers"):
        paired_difference([0.0, 1.0], [0.0, bad])


@pytest.mark.parametrize("values", [[], [0.5]])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"at least 2 values, got {len(values)}; measure more units\."):
        mean_interval(values)
    with pytest.raises(ValueError, match=rf"a must have at least 2 values, got {len(values)}"):
        permutation_test(values, values)


def test_unequal_lengths_are_no_pairs() -> None:
    for compare in (paired_difference, permutation_test):
        with pytest.raises(ValueError, match="a and b must be paired, got 3 and 2 values; "):
            compare([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="one label per pair, got 2 labels for 3 pairs; "):
        stratified_paired_difference([1, 2, 3], [1, 2, 3], ["x", "x"])


def test_a_stratum_of_one_pair_has_no_spread_to_draw_from() -> None:
    with pytest.raises(ValueError, match="every stratum must have at least two pairs, got one in 'y'; "):
        stratified_paired_difference([1, 2, 3], [1, 2, 3], ["x", "x", "y"])


def test_options_out_of_range_are_refused() -> None:
    for confidence in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match=r"confidence must be (in \(0, 1\)|above 0|a finite number), got "):
            mean_interval([0, 1], confidence=confidence)
    with pytest.raises(ValueError, match="resamples must be at least 1, got 0; "):
        permutation_test([0, 1], [0, 1], resamples=0)
    with pytest.raises(ValueError, match=r"values must be a flat list of numbers, got shape \(2, 2\); "):
        mean_interval([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=r"p_values must be in \[0, 1\], got 1\.5; "):
        holm([0.5, 1.5])
    with pytest.raises(ValueError, match="p_values must have at least 1 value, got 0; "):
        holm([])


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("scipy", lambda: mean_interval([0, 1])),
        ("scipy", lambda: permutation_test([0, 1], [1, 1])),
        ("statsmodels", lambda: holm([0.5])),
    ],
)
def test_a_missing_library_is_named_with_the_remedy(
    library: str, call: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name == library or name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"{library}, got none; run pip install 'scipy"):
        call()  # type: ignore[operator]


def test_clusters_are_resampled_whole_and_the_ends_are_those_of_the_level() -> None:
    def mean(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return counts @ rows[:, 0] / counts.sum(axis=1)

    clusters = [np.array([[0.0]]), np.array([[1.0], [1.0], [1.0]])]
    # Both the first, one each, both the second: 0, 3/4 and 1, with probabilities 1/4, 1/2 and 1/4.
    for confidence, ends in ((0.4, (0.75, 0.75)), (0.9, (0.0, 1.0))):
        found = clustered_interval(clusters, mean, confidence)
        assert (found.low, found.mean, found.high, found.n) == (ends[0], 0.75, ends[1], 2)


def test_the_interval_of_graded_scores_by_hand() -> None:
    # m = .4, s^2 = .04: as 3 x .24 / .04 = 18 successes and failures, with t(.975; 2) = 4.30265.
    found = mean_interval([0.2, 0.4, 0.6], within=SHARE)
    assert (found.low, found.mean, found.high) == pytest.approx((0.09820, 0.4, 0.80320), abs=1e-5)
