"""Exact cosines."""

from __future__ import annotations

import pytest

from hf_credit.environments.preference_estimation import THRESHOLD, squared_cosine


def test_a_cosine_that_equals_the_threshold_does_not_exceed_it():
    # (22, k) against (1, 0) has the cosine 22 / sqrt(484 + k^2); with three more places k^2 = 141 = 11^2 + 4^2 + 2^2,
    # and the norm is 25: the cosine is 22/25 = 0.88.
    vector, axis = (22, 11, 4, 2), (1, 0, 0, 0)
    assert squared_cosine(vector, axis) == THRESHOLD**2
    assert squared_cosine((23, 11, 4, 2), axis) > THRESHOLD**2


def test_large_scales_change_nothing():
    vector, axis = (22 * 10**40, 11 * 10**40, 4 * 10**40, 2 * 10**40), (3 * 10**50, 0, 0, 0)
    assert squared_cosine(vector, axis) == THRESHOLD**2


@pytest.mark.parametrize(("first", "second"), [((0, 0), (1, 2)), ((1, 2), (0, 0)), ((0, 0), (0, 0))])
def test_a_zero_vector_has_no_cosine(first, second):
    assert squared_cosine(first, second) is None
