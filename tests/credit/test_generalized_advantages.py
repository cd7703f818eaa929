"""Generalized advantages worked by hand, and against the textbook's recursion over the actions alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import discounted_returns, generalized_advantages

NAN, INF = math.nan, math.inf
NUMBERS = st.integers(-40, 40).map(lambda eighths: eighths / 8)
FACTORS = st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0])
# A sequence is a list of (reward, value, is an action).
SEQUENCES = st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), max_size=12)


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
    """Rewards and values of the actions, each with the rewards that were paid behind it."""
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
