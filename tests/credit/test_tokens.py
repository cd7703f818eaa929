"""Advantages, rewards-to-go and whitening of tokens against numbers worked out by hand, and laws."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import discounted_returns, token_advantages, token_returns, whitened


def test_every_token_has_the_advantage_of_its_decision_and_others_have_none():
    advantages = torch.tensor([[0.5, -1.0], [2.0, 9.0]])
    # A reply of two tokens, an observation, a reply of one; the second row has one decision and padding.
    decision_of_token = torch.tensor([[0, 0, -1, 1], [0, -1, -1, -1]])
    expected = torch.tensor([[0.5, 0.5, 0.0, -1.0], [2.0, 0.0, 0.0, 0.0]])
    assert torch.equal(token_advantages(advantages, decision_of_token), expected)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 6), st.integers(0, 999))
def test_it_is_what_a_loop_finds(rows, decisions, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    advantages = torch.randn(rows, decisions, generator=generator, dtype=torch.float64)
    index = torch.randint(-1, decisions, (rows, tokens), generator=generator)
    found = token_advantages(advantages, index)
    assert found.dtype == torch.float64
    for row in range(rows):
        for token in range(tokens):
            own = int(index[row, token])
            assert found[row, token] == (0.0 if own < 0 else advantages[row, own])


def test_the_gradient_reaches_the_advantages_as_often_as_they_have_tokens():
    advantages = torch.zeros(1, 2, requires_grad=True)
    token_advantages(advantages, torch.tensor([[0, 0, 1, -1]])).sum().backward()
    assert advantages.grad.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize(("wrong", "value"), [([[0, 2]], 2), ([[-2, 0]], -2)])
def test_a_decision_that_is_not_there_is_refused(wrong, value):
    with pytest.raises(ValueError, match=rf"must be an index below 2, or -1 for none, got {value}; number"):
        token_advantages(torch.zeros(1, 2), torch.tensor(wrong))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("index", [torch.zeros(3, 4, dtype=torch.long), torch.zeros(4, dtype=torch.long)])
def test_other_rows_are_refused(index):
    with pytest.raises(ValueError, match=r"must have the same rows, got \(2, 1\) and \("):
        token_advantages(torch.zeros(2, 1), index)


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


def test_eps_is_added_to_the_variance() -> None:
    # The mean of weights 1, 1, 1, 1 is 3/4, the sample variance 1/4, and its root with 3/4 more is 1.
    found = whitened(torch.tensor([1.0, 0.0, 1.0, 1.0]), eps=0.75)
    assert found.tolist() == pytest.approx([0.25, -0.75, 0.25, 0.25])
