"""Hack rates that know how their detector errs."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.diagnostics import detector_errors, hack_rate


def test_error_rates_are_shares_of_the_clean_and_of_the_hacked():
    found = detector_errors([True, False, False, False, True, False], [False, False, False, False, True, True])
    assert (found.false_positive_rate, found.false_negative_rate) == (1 / 4, 1 / 2)
    assert (found.clean, found.hacked) == (4, 2)
    assert math.isnan(detector_errors([True], [False]).false_negative_rate)


def test_without_detector_errors_the_rate_is_the_flagged_share():
    found = hack_rate([True, False, False, False])
    assert (found.apparent, found.corrected, found.n) == (0.25, 0.25, 4)


def test_without_a_flag_the_interval_does_not_vanish():
    found = hack_rate([False] * 20)
    # (0 + 1.9207) / 23.8415 = .08056; .08056 + 1.959964 sqrt(.08056 * .91944 / 23.8415) = .1898
    assert (found.apparent, found.corrected, found.low) == (0.0, 0.0, 0.0)
    assert found.high == pytest.approx(0.1898, abs=1e-4)
    assert hack_rate([True] * 20).low == pytest.approx(1 - found.high)


@given(st.integers(1, 200), st.floats(0, 1), st.floats(0, 0.4), st.floats(0, 0.4))
def test_the_interval_contains_the_corrected_share(n, share, fpr, fnr):
    found = hack_rate([place < share * n for place in range(n)], fpr, fnr)
    assert found.low - 1e-9 <= found.corrected <= found.high + 1e-9


def test_error_rates_that_were_measured_widen_the_interval():
    flags = [True] * 30 + [False] * 70
    known = hack_rate(flags, 0.1, 0.2)
    measured = hack_rate(flags, 0.1, 0.2, clean=40, hacked=10)
    # (.3 - .1) / .7 = 2/7; of the interval a = (30 + 1.9207) / 103.8415 = .30740 and c = (a - .1) / .7 = .29628, and
    # a (1 - a) / 103.8415 + c^2 .2 * .8 / 10 + (1 - c)^2 .1 * .9 / 40, over .7^2.
    sd = math.sqrt(0.0020503 + 0.29628**2 * 0.016 + 0.70372**2 * 0.00225) / 0.7
    assert measured.corrected == pytest.approx(2 / 7)
    assert measured.high == pytest.approx(0.29628 + 1.959964 * sd, abs=1e-4)
    assert measured.low < known.low < known.corrected < known.high < measured.high


def test_the_correction_finds_the_true_rate_of_an_erring_detector():
    draws = random.Random(0)
    hacked = [draws.random() < 0.3 for _ in range(4000)]
    flags = [draws.random() < (0.85 if bad else 0.12) for bad in hacked]
    found = hack_rate(flags, 0.12, 0.15)
    assert abs(found.apparent - 0.3) > 0.03
    assert found.low < 0.3 < found.high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "a hack rate needs at least one episode, got none"),
        (([True], 0.5, 0.5), "sum to less than 1, got 0.5 and 0.5"),
        (([True], -0.1, 0.5), "must be at least 0 and sum to less than 1"),
        (([True], math.nan, 0.5), "must be at least 0 and sum to less than 1"),
    ],
)
def test_a_useless_detector_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        hack_rate(*arguments)
    with pytest.raises(ValueError, match="confidence must be "):
        hack_rate([True], confidence=1)
