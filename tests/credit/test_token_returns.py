"""Rewards-to-go of tokens against numbers worked out by hand and the recursion."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import discounted_returns, token_returns


def test_the_outcome_is_paid_with_the_last_token():
    found = token_returns(torch.tensor([1.0, -2.0]), torch.tensor([3, 2]), 0.5)
    assert found.tolist() == [0.25, 0.5, 1.0, -1.0, -2.0]
    assert token_returns(torch.tensor([1, 0]), torch.tensor([2, 1])).tolist() == [1, 1, 0]


def test_rollouts_without_tokens_take_no_place():
    assert token_returns(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 2, 0]), 0.0).tolist() == [0, 2]
    assert token_returns(torch.zeros(0), torch.zeros(0).long()).tolist() == []


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), min_size=1, max_size=5), st.floats(0, 1))
def test_it_is_the_recursion_over_tokens(rollouts, gamma):
    outcomes = torch.tensor([float(outcome) for outcome, _ in rollouts], dtype=torch.float64)
    lengths = torch.tensor([length for _, length in rollouts])
    active = torch.arange(5)[None] < lengths[:, None]
    last = torch.arange(5)[None] == lengths[:, None] - 1
    rewards = torch.where(last, outcomes[:, None], 0)
    expected = discounted_returns(rewards, active, gamma)[active]
    torch.testing.assert_close(token_returns(outcomes, lengths, gamma), expected)


def test_a_discount_outside_of_the_unit_interval_is_refused():
    with pytest.raises(ValueError, match=r"got 1\.5"):
        token_returns(torch.zeros(1), torch.ones(1).long(), 1.5)
