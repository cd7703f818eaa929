"""How often updates stay within a radius, by hand."""

from __future__ import annotations

import math

import pytest

from hf_credit.diagnostics import kl_compliance


def test_updates_at_the_radius_are_within() -> None:
    found = kl_compliance([0.01, 0.02, 0.03, 0.0], 0.02)
    assert (found.within, found.n) == (0.75, 4)
    assert found.mean == pytest.approx(0.015)
    assert found.p99 == pytest.approx(0.0297)


@pytest.mark.parametrize(
    ("divergences", "radius", "message"),
    [([], 0.1, "got none"), ([-0.1], 0.1, "got -0.1"), ([math.nan], 0.1, "got nan"), ([0.1], 0.0, "above 0, got 0.0")],
)
def test_numbers_out_of_range_are_refused(divergences: list[float], radius: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kl_compliance(divergences, radius)
