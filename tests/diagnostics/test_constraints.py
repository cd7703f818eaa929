"""Costs against their limits."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import constraint_violation


def test_the_violation_is_that_of_the_mean():
    found = constraint_violation([0.0, 0.0, 0.0, 1.0], 0.2)
    assert (found.cost, found.violation, found.episodes_above, found.n) == (0.25, pytest.approx(0.05), 0.25, 4)
    assert constraint_violation([0.0, 0.2], 0.2).violation == 0


@pytest.mark.parametrize(
    ("costs", "limit", "message"),
    [
        ([], 0.1, "a cost needs at least one number, got none"),
        ([-0.5], 0.1, "a cost must be at least 0, got -0.5"),
        ([math.nan], 0.1, "a cost must be a finite number, got nan"),
        ([0.5], -0.1, "a limit must be at least 0, got -0.1"),
    ],
)
def test_an_invalid_cost_is_refused(costs, limit, message):
    with pytest.raises(ValueError, match=message):
        constraint_violation(costs, limit)
