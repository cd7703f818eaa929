"""Overlap, by hand."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import overlap


def test_equal_ratios_have_the_full_effective_sample_size() -> None:
    found = overlap([2.0, 2.0, 2.0])
    assert (found.median, found.p95, found.ratio_clipped, found.n) == (2.0, 2.0, 0.0, 3)
    assert found.effective == pytest.approx(1.0)
    assert math.isnan(found.selection_median)
    assert math.isnan(found.selection_at_floor)


def test_one_large_ratio_lowers_the_effective_sample_size() -> None:
    found = overlap([9.0, 1.0, 0.0, 0.1], [0.15, 0.6])
    assert found.effective == pytest.approx(10.1**2 / (4 * 82.01))
    assert found.ratio_clipped == 0.75
    assert (found.selection_median, found.selection_at_floor) == (pytest.approx(0.375), 0.5)
    assert overlap([1e200, 1e200]).effective == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ratios", "probabilities", "message"),
    [
        ([], [], "at least one number, got none"),
        ([-1.0], [], "must be at least 0, got -1.0"),
        ([math.inf], [], "must be a finite number"),
        ([0.0], [], "must be above 0, got 0.0 for all"),
        ([1.0], [0.0], "must be above 0, got 0.0"),
    ],
)
def test_numbers_out_of_range_are_refused(ratios: list[float], probabilities: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overlap(ratios, probabilities)
