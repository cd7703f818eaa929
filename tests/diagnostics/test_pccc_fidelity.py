"""Estimated and exact contributions of steps, by hand."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import pccc_fidelity


def test_estimates_are_compared_with_exact_contributions() -> None:
    found = pccc_fidelity([0.4, -0.2, 0.1], [0.5, -0.1, 0.0])
    assert found.rank_correlation == pytest.approx(1.0)
    assert found.squared_error == pytest.approx(0.01)
    assert found.bias == pytest.approx(-0.1 / 3)
    assert (found.sign_agreement, found.n) == (1.0, 3)


def test_constant_contributions_have_no_rank_correlation() -> None:
    found = pccc_fidelity([0.1, 0.2], [0.0, 0.0])
    assert math.isnan(found.rank_correlation)
    assert math.isnan(found.sign_agreement)


@pytest.mark.parametrize(
    ("estimates", "exact", "message"),
    [
        ([], [], "got 0 and 0"),
        ([1.0], [1.0, 2.0], "got 1 and 2"),
        ([math.nan], [0.0], "must be a finite number, got nan"),
    ],
)
def test_unpaired_numbers_are_refused(estimates: list[float], exact: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pccc_fidelity(estimates, exact)
