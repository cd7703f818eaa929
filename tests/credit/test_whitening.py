"""Whitening against numbers worked out by hand and repetition."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import whitened

MEMBERS = st.lists(st.tuples(st.integers(-80, 80).map(lambda n: n / 8), st.integers(0, 4)), max_size=8)


def test_values_are_told_in_standard_deviations_of_all():
    # mean 3/4; variance 1/4 of the sample, 3/16 of the population
    values = torch.tensor([1.0, 0.0, 1.0, 1.0])
    torch.testing.assert_close(whitened(values), torch.tensor([0.5, -1.5, 0.5, 0.5]))
    expected = torch.tensor([0.25, -0.75, 0.25, 0.25]) / math.sqrt(3 / 16)
    torch.testing.assert_close(whitened(values, correction=0), expected)


@given(MEMBERS, st.sampled_from([0, 1]))
def test_a_weight_is_a_number_of_members(members, correction):
    values = torch.tensor([value for value, _ in members], dtype=torch.float64)
    weights = torch.tensor([weight for _, weight in members], dtype=torch.long)
    repeated = whitened(values.repeat_interleave(weights), correction=correction)
    found = whitened(values, weights, correction=correction).repeat_interleave(weights)
    torch.testing.assert_close(found, repeated)


@given(MEMBERS)
def test_what_is_whitened_has_mean_zero_and_variance_one(members):
    values = torch.tensor([value for value, _ in members], dtype=torch.float64)
    found = whitened(values, eps=0.0)
    if len(set(values.tolist())) > 1:
        torch.testing.assert_close(found.mean(), found.new_zeros(()))
        torch.testing.assert_close(found.std(), found.new_ones(()))
    else:
        assert not found.any()


def test_equal_values_get_exactly_nothing():
    assert whitened(torch.full((7,), 0.1, dtype=torch.float64)).tolist() == [0] * 7
    assert whitened(torch.zeros(0)).tolist() == []
    assert whitened(torch.tensor([3.0, 9.0]), torch.tensor([5, 0])).tolist() == [0, 0]


def test_integers_and_booleans_are_promoted():
    assert whitened(torch.tensor([1, 0, 1, 1])).tolist() == whitened(torch.tensor([True, False, True, True])).tolist()
    assert whitened(torch.tensor([1, 0])).dtype == torch.float32


@pytest.mark.parametrize(("values", "eps"), [([math.nan], 1e-8), ([1.0], -1.0)])
def test_what_is_not_possible_is_refused(values, eps):
    with pytest.raises(ValueError, match="must be"):
        whitened(torch.tensor(values), eps=eps)
