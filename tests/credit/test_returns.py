"""Returns and value differences, worked by hand and against brute-force sums."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import discounted_returns, value_differences

NAN = math.nan
NUMBERS = st.floats(-100, 100)


@st.composite
def matrices(draw, prefix=False):
    """(numbers, active) as nested lists; with `prefix`, the active turns of a trajectory come first."""
    rows, turns = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    numbers = draw(st.lists(st.lists(NUMBERS, min_size=turns, max_size=turns), min_size=rows, max_size=rows))
    if prefix:
        lengths = draw(st.lists(st.integers(0, turns), min_size=rows, max_size=rows))
        return numbers, [[turn < length for turn in range(turns)] for length in lengths]
    mask = st.lists(st.lists(st.booleans(), min_size=turns, max_size=turns), min_size=rows, max_size=rows)
    return numbers, draw(mask)


def tensors(numbers, active):
    """Inactive entries hold NaN."""
    values, mask = torch.tensor(numbers, dtype=torch.float64), torch.tensor(active)
    return torch.where(mask, values, NAN), mask


# Discounted returns


def test_returns_by_hand():
    rewards, active = tensors([[1, 2, 4], [3, 5, 0]], [[True, True, True], [True, True, False]])
    assert discounted_returns(rewards, active, 0.5).tolist() == [[3.0, 4.0, 4.0], [5.5, 5.0, 0.0]]


def test_without_discount_the_return_is_the_sum_of_what_is_to_come():
    rewards, active = tensors([[1, 2, 4]], [[True] * 3])
    assert discounted_returns(rewards, active, 1.0).tolist() == [[7.0, 6.0, 4.0]]


@given(matrices())
def test_with_discount_zero_the_return_is_the_reward_itself(matrix):
    rewards, active = tensors(*matrix)
    expected = torch.where(active, rewards, 0)
    assert torch.equal(discounted_returns(rewards, active, 0.0), expected)


@given(matrices(), st.floats(0, 1))
def test_returns_are_the_discounted_sums(matrix, discount):
    numbers, mask = matrix
    rewards, active = tensors(numbers, mask)
    expected = [
        [
            sum(discount ** (k - t) * row[k] for k in range(t, len(row)) if on[k]) if on[t] else 0.0
            for t in range(len(row))
        ]
        for row, on in zip(numbers, mask, strict=True)
    ]
    torch.testing.assert_close(
        discounted_returns(rewards, active, discount), torch.tensor(expected, dtype=torch.float64)
    )


@given(matrices(), st.floats(0, 1))
def test_returns_leave_the_rewards_as_they_are(matrix, discount):
    rewards, active = tensors(*matrix)
    before = rewards.clone()
    discounted_returns(rewards, active, discount)
    torch.testing.assert_close(rewards, before, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("discount", [-0.1, 1.1, NAN])
def test_a_discount_outside_its_range_is_refused(discount):
    with pytest.raises(ValueError, match=r"discount must be (in \[0, 1\]|a finite number), got "):
        discounted_returns(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), discount)


def test_returns_of_no_turns_are_none():
    assert discounted_returns(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool), 0.9).shape == (2, 0)


# Value differences


def test_differences_by_hand():
    values, active = tensors([[0.5, 0.25, 1.0], [0.2, 0.6, 0.0]], [[True, True, True], [True, True, False]])
    result = value_differences(values, torch.tensor([1.0, 0.0], dtype=torch.float64), active)
    torch.testing.assert_close(result, torch.tensor([[-0.25, 0.75, 0.0], [0.4, -0.6, 0.0]], dtype=torch.float64))


@given(matrices(prefix=True), st.data())
def test_the_differences_of_a_trajectory_sum_to_its_outcome_minus_the_value_of_its_first_state(matrix, data):
    numbers, mask = matrix
    outcomes = data.draw(st.lists(NUMBERS, min_size=len(numbers), max_size=len(numbers)))
    values, active = tensors(numbers, mask)
    result = value_differences(values, torch.tensor(outcomes, dtype=torch.float64), active)
    assert not result[~active].any()
    for row, first, outcome, on in zip(result, numbers, outcomes, mask, strict=True):
        assert row.sum().item() == pytest.approx(outcome - first[0] if on[0] else 0.0, abs=1e-9)


@given(matrices(prefix=True), st.data())
def test_each_difference_is_the_next_value_minus_the_own(matrix, data):
    numbers, mask = matrix
    outcomes = data.draw(st.lists(NUMBERS, min_size=len(numbers), max_size=len(numbers)))
    values, active = tensors(numbers, mask)
    expected = []
    for row, on, outcome in zip(numbers, mask, outcomes, strict=True):
        path = [*[value for value, a in zip(row, on, strict=True) if a], outcome]
        steps = [after - before for before, after in itertools.pairwise(path)]
        expected.append(steps + [0.0] * (len(row) - len(steps)))
    result = value_differences(values, torch.tensor(outcomes, dtype=torch.float64), active)
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))


def test_a_perfect_value_rewards_nothing_but_surprise():
    values, active = tensors([[1.0, 1.0, 1.0]], [[True] * 3])
    assert not value_differences(values, torch.tensor([1.0], dtype=torch.float64), active).any()
