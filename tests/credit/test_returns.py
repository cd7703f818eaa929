"""Returns, value differences and generalized advantages, worked by hand and against brute-force sums."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import discounted_returns, generalized_advantages, value_differences

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


INF = math.inf
EIGHTHS = st.integers(-40, 40).map(lambda eighths: eighths / 8)
FACTORS = st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0])
# A sequence is a list of (reward, value, is an action).
SEQUENCES = st.lists(st.tuples(EIGHTHS, EIGHTHS, st.booleans()), max_size=12)


def advantages(sequences, gamma=1.0, lam=1.0):
    """Of sequences of one length."""
    width = len(sequences[0])
    shape = (len(sequences), width, 3)
    table = torch.tensor([[list(map(float, entry)) for entry in row] for row in sequences], dtype=torch.float64)
    rewards, values, mask = table.reshape(shape).unbind(-1)
    return generalized_advantages(rewards, values, mask.bool(), gamma, lam)


def textbook(rewards, values, gamma, lam):
    """The recursion of the paper over a sequence of actions, backwards."""
    result, following_value, following = [], 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * following_value - value + gamma * lam * following
        following_value = value
        result.append(following)
    return result[::-1]


def actions_alone(sequence):
    """Rewards and values of the actions, each with the rewards that were paid after it."""
    rewards, values = [], []
    for reward, value, action in sequence:
        if action:
            rewards.append(reward)
            values.append(value)
        elif rewards:
            rewards[-1] += reward
    return rewards, values


def close(result, expected):
    torch.testing.assert_close(result, torch.as_tensor(expected, dtype=result.dtype), rtol=1e-12, atol=1e-12)


# Numbers worked out by hand


def test_advantages_are_discounted_sums_of_temporal_differences():
    # delta = (0 + 0.5*2 - 1, 0 + 0.5*4 - 2, 8 - 4) = (0, 0, 4); gamma*lam = 0.25
    close(advantages([[(0, 1, True), (0, 2, True), (8, 4, True)]], gamma=0.5, lam=0.5), [[0.25, 1, 4]])


def test_observations_are_skipped_and_not_decayed_over():
    sequence = [(0, 1, True), (0, 9, False), (0, 9, False), (0, 2, True), (0, 9, False), (8, 4, True)]
    close(advantages([sequence], gamma=0.5, lam=0.5), [[0.25, 0, 0, 1, 0, 4]])


def test_a_reward_behind_the_last_action_is_that_actions_own_undiscounted():
    sequence = [(0, 1, True), (0, 2, True), (0, 4, True), (0, 0, False), (8, 0, False)]
    close(advantages([sequence], gamma=0.5, lam=0.5), [[0.25, 1, 4, 0, 0]])


def test_a_reward_before_the_first_action_is_nobodys():
    close(advantages([[(100, 0, False), (1, 0.5, True)]]), [[0, 0.5]])


def test_a_sequence_without_actions_has_no_advantages():
    assert advantages([[(3, 1, False), (2, 1, False)]]).tolist() == [[0, 0]]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_an_empty_batch_has_no_advantages(shape):
    nothing = torch.zeros(shape)
    assert generalized_advantages(nothing, nothing, nothing.long(), 0.9, 0.9).shape == shape


def test_without_lambda_an_advantage_is_one_temporal_difference():
    close(advantages([[(1, 2, True), (3, 4, True)]], gamma=0.5, lam=0), [[1 + 0.5 * 4 - 2, 3 - 4]])


def test_the_result_has_the_dtype_of_the_rewards():
    rewards, values = torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bfloat16)
    assert generalized_advantages(rewards, values, torch.ones(1, 2, dtype=torch.long), 1, 1).dtype == torch.float32


def test_a_terminal_reward_reaches_the_first_of_many_tokens():
    length = 4099
    rewards = torch.zeros(1, length, dtype=torch.float64)
    rewards[0, -1] = 1
    result = generalized_advantages(rewards, torch.zeros_like(rewards), torch.ones_like(rewards).bool(), 1, 0.999)
    close(result[0], 0.999 ** torch.arange(length - 1, -1, -1, dtype=torch.float64))


# Laws


@given(SEQUENCES, FACTORS, FACTORS)
def test_advantages_are_the_textbooks_over_the_actions_alone(sequence, gamma, lam):
    result = advantages([sequence], gamma, lam)[0]
    mask = torch.tensor([action for *_, action in sequence], dtype=torch.bool)
    close(result[mask], textbook(*actions_alone(sequence), gamma, lam))
    assert not result[~mask].any()


@given(SEQUENCES, FACTORS, FACTORS, st.lists(st.integers(0, 12), max_size=5))
def test_inserted_observations_change_nothing(sequence, gamma, lam, positions):
    longer = list(sequence)
    for position in positions:
        longer.insert(min(position, len(longer)), (0.0, 5.0, False))
    before, after = advantages([sequence], gamma, lam)[0], advantages([longer], gamma, lam)[0]
    close(after[[a for *_, a in longer]], before[[a for *_, a in sequence]])


@given(st.lists(SEQUENCES, min_size=1, max_size=4), FACTORS, FACTORS, st.booleans())
def test_neither_padding_nor_the_rest_of_the_batch_changes_anything(sequences, gamma, lam, left):
    width = max(map(len, sequences)) + 1
    padded = []
    for sequence in sequences:
        padding = [(0.0, NAN, False)] * (width - len(sequence))
        padded.append([*padding, *sequence] if left else [*sequence, *padding])
    for row, sequence in zip(advantages(padded, gamma, lam), sequences, strict=True):
        own = row[width - len(sequence) :] if left else row[: len(sequence)]
        close(own, advantages([sequence], gamma, lam)[0])


@given(SEQUENCES)
def test_without_discount_an_advantage_is_the_reward_to_go_minus_the_value(sequence):
    result = advantages([sequence])[0]
    for position, (_, value, action) in enumerate(sequence):
        if action:
            to_go = sum(reward for reward, *_ in sequence[position:])
            assert result[position].item() == pytest.approx(to_go - value)


@given(SEQUENCES, FACTORS)
def test_without_values_and_with_lambda_one_advantages_are_discounted_returns(sequence, gamma):
    rewards = torch.tensor([reward for reward, *_ in sequence], dtype=torch.float64)[None]
    everywhere = torch.ones_like(rewards, dtype=torch.bool)
    result = generalized_advantages(rewards, torch.zeros_like(rewards), everywhere, gamma, 1.0)
    close(result, discounted_returns(rewards, everywhere, gamma))


@given(SEQUENCES, FACTORS, FACTORS, st.sampled_from([NAN, INF, -1e300]))
def test_values_off_the_mask_do_not_count(sequence, gamma, lam, garbage):
    dirty = [(reward, value if action else garbage, action) for reward, value, action in sequence]
    assert torch.equal(advantages([dirty], gamma, lam), advantages([sequence], gamma, lam))


# Refused


@pytest.mark.parametrize(("gamma", "lam"), [(1.1, 1.0), (-0.1, 1.0), (1.0, 2.0), (1.0, NAN)])
def test_factors_out_of_range_are_refused(gamma, lam):
    with pytest.raises(ValueError, match=r"(gamma|lam) must be (in \[0, 1\]|a finite number), got"):
        advantages([[(1, 0, True)]], gamma, lam)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="rewards and the values of actions must be finite"):
        advantages([[(bad, 0, False)]])
    with pytest.raises(ValueError, match="rewards and the values of actions must be finite"):
        advantages([[(0, bad, True)]])


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"got \(1, 2\), \(1, 3\) and \(1, 2\); pad all"):
        generalized_advantages(torch.zeros(1, 2), torch.zeros(1, 3), torch.ones(1, 2).bool(), 1.0, 1.0)
    with pytest.raises(ValueError, match="one shape"):
        generalized_advantages(torch.zeros(2), torch.zeros(2), torch.ones(2).bool(), 1.0, 1.0)
