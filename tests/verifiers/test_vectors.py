"""Exact cosines."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hf_credit.environments.preference_estimation import cosine_exceeds


def test_a_cosine_that_equals_the_threshold_does_not_exceed_it():
    # (22, k) against (1, 0) has the cosine 22 / sqrt(484 + k^2); with three more places k^2 = 141 = 11^2 + 4^2 + 2^2,
    # and the norm is 25: the cosine is 22/25 = 0.88.
    vector, axis = (22, 11, 4, 2), (1, 0, 0, 0)
    assert not cosine_exceeds(vector, axis, Fraction(88, 100))
    assert cosine_exceeds((23, 11, 4, 2), axis, Fraction(88, 100))
    assert cosine_exceeds(vector, axis, Fraction(88, 100) - Fraction(1, 10**12))


def test_large_scales_change_nothing():
    vector, axis = (22 * 10**40, 11 * 10**40, 4 * 10**40, 2 * 10**40), (3 * 10**50, 0, 0, 0)
    assert not cosine_exceeds(vector, axis, Fraction(88, 100))


@pytest.mark.parametrize(
    ("first", "second"), [((0, 0), (1, 2)), ((1, 2), (0, 0)), ((0, 0), (0, 0)), ((1, 2), (-1, -2))]
)
def test_a_zero_vector_and_an_opposite_one_exceed_nothing(first, second):
    assert not cosine_exceeds(first, second, Fraction(0))
