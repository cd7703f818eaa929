from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import full_mean, leave_one_out
from hf_credit.diagnostics import context_variance

finite = st.floats(-5, 5, allow_nan=False)


def test_variance_within_and_between_contexts() -> None:
    # Inside: (1/4, 1), mean 5/8. Means 1/2 and 3, about 7/4: (5/4)^2.
    found = context_variance([[0.0, 1.0], [2.0, 4.0]])
    assert found.within == pytest.approx(5 / 8)
    assert found.between == pytest.approx(25 / 16)
    assert found.by_bucket == pytest.approx((1 / 4, 1))
    assert (found.buckets, found.alone) == (2, 0)


def test_a_shift_of_a_whole_context_changes_only_the_variance_between() -> None:
    plain, shifted = context_variance([[0, 1], [0, 1]]), context_variance([[0, 1], [10, 11]])
    assert plain.within == shifted.within
    assert plain.between == 0 < shifted.between


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=4))
def test_leave_one_out_scales_the_variance_by_a_factor(returns) -> None:
    flat = torch.tensor(returns, dtype=torch.float64).flatten()
    groups = torch.arange(len(returns)).repeat_interleave(3)
    within = [
        context_variance(estimate(flat, groups).view(-1, 3).tolist()).within for estimate in (leave_one_out, full_mean)
    ]
    assert within[0] == pytest.approx(within[1] * (3 / 2) ** 2, abs=1e-12)


def test_constant_credits_do_not_vary() -> None:
    found = context_variance([[0.5, 0.5], [0.5, 0.5]])
    assert (found.within, found.between) == (0, 0)


def test_one_candidate_has_no_variance_and_is_counted() -> None:
    found = context_variance([[7.0], [0.0, 2.0], []])
    assert (found.within, found.between, found.buckets, found.alone) == (1.0, 0.0, 1, 2)
    assert [math.isnan(value) for value in found.by_bucket] == [True, False, True]


@pytest.mark.parametrize("credits", [[], [[1.0]]])
def test_without_anything_to_measure_it_is_nan(credits) -> None:
    found = context_variance(credits)
    assert math.isnan(found.within)
    assert math.isnan(found.between)
    assert found.buckets == 0


@pytest.mark.parametrize(("credits", "complaint"), [([[1, math.nan]], "finite numbers"), ([1.0], "flat list")])
def test_unusable_credits_are_refused(credits, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        context_variance(credits)
