"""Turn-level group advantages against eq. 4 worked by hand, and against a brute force of its own."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import trajectory_advantages, turn_group_advantages

NAN, INF = math.nan, math.inf

# Multiples of 1/8 are exact, so equal rewards stay equal under a shift.
REWARDS = st.integers(-80, 80).map(lambda eighths: eighths / 8)


@st.composite
def batches(draw):
    """(rewards, active) as nested lists; activity need not come first in a row."""
    rows, turns = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    matrix = st.lists(st.lists(REWARDS, min_size=turns, max_size=turns), min_size=rows, max_size=rows)
    mask = st.lists(st.lists(st.booleans(), min_size=turns, max_size=turns), min_size=rows, max_size=rows)
    return draw(matrix), draw(mask)


def advantages(rewards, active, **options):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    return turn_group_advantages(rewards, torch.tensor(active), **options)


def brute_force(rewards, active, min_active=4, eps=1e-8):
    pairs = [r for row, on in zip(rewards, active, strict=True) for r, a in zip(row, on, strict=True) if a]
    result = [[0.0] * len(row) for row in rewards]
    for turn in range(len(rewards[0])):
        group = [row[turn] for row, on in zip(rewards, active, strict=True) if on[turn]]
        reference = group if len(group) >= min_active else pairs
        for i, on in enumerate(active):
            if on[turn] and len(set(reference)) > 1:
                result[i][turn] = (rewards[i][turn] - fmean(reference)) / (pstdev(reference) + eps)
    return torch.tensor(result, dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=1e-6, atol=1e-7)


# By hand


def test_each_turn_is_normalised_over_its_own_group():
    rewards = [[1, 3], [0, 1], [1, 2], [0, 2]]
    # turn 1: mean 1/2, std 1/2; turn 2: mean 2, population std sqrt(2/4)
    root = math.sqrt(2)
    close(advantages(rewards, [[True] * 2] * 4), [[1, root], [-1, -root], [1, 0], [-1, 0]])


def test_a_turn_with_three_active_trajectories_uses_the_statistics_of_all_pairs():
    rewards = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, NAN], [1.0, NAN]]
    active = [[True, True], [True, True], [True, True], [True, False], [True, False]]
    # turn 1 has five of its own: mean 3/5, std sqrt(6)/5. All eight pairs: five ones, mean 5/8, std sqrt(15)/8.
    up, down = 2 / math.sqrt(6), -3 / math.sqrt(6)
    up_all, down_all = 3 / math.sqrt(15), -5 / math.sqrt(15)
    close(advantages(rewards, active), [[up, up_all], [up, down_all], [down, up_all], [down, 0], [up, 0]])


def test_a_turn_with_exactly_min_active_trajectories_uses_its_own_statistics():
    rewards, active = [[1, 5], [0, 5], [1, 5], [0, 5]], [[True, True]] * 4
    assert advantages(rewards, active)[:, 1].tolist() == [0.0] * 4
    # one more than there are: mean 2.75, std sqrt((2 * 1.75^2 + 2 * 2.75^2 + 4 * 2.25^2) / 8) = sqrt(5.1875)
    close(advantages(rewards, active, min_active=5)[:, 1], [2.25 / math.sqrt(5.1875)] * 4)


def test_a_single_trajectory_is_compared_with_its_own_other_turns():
    close(advantages([[1.0, 0.0]], [[True, True]]), [[1.0, -1.0]])


def test_a_single_decision_has_nothing_to_be_compared_with():
    assert advantages([[7.0]], [[True]]).tolist() == [[0.0]]
    assert advantages([[7.0], [NAN]], [[True], [False]]).tolist() == [[0.0], [0.0]]


def test_eps_is_added_to_the_standard_deviation():
    close(advantages([[1], [0], [1], [0]], [[True]] * 4, eps=0.5), [[0.5], [-0.5], [0.5], [-0.5]])


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-30, 1e30, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_have_advantage_exactly_zero(reward, dtype):
    rewards = torch.full((1000, 2), reward, dtype=dtype)
    active = torch.ones(1000, 2, dtype=torch.bool)
    active[3:, 1] = False  # this turn falls back to the statistics of all
    assert not turn_group_advantages(rewards, active, eps=0.0).any()


def test_a_turn_without_spread_is_zero_while_another_has_spread():
    result = advantages([[0.1, 1], [0.1, 0], [0.1, 1], [0.1, 0]], [[True, True]] * 4)
    assert result[:, 0].tolist() == [0.0] * 4
    assert result[:, 1].abs().min() > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_is_that_of_the_rewards(dtype):
    result = turn_group_advantages(torch.tensor([[1.0], [0.0]], dtype=dtype), torch.tensor([[True], [True]]), 1, 0.0)
    assert result.dtype == dtype
    assert result.tolist() == [[1.0], [-1.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_of_many_rewards_keep_their_precision(dtype):
    rewards = torch.tensor([[100.0], [0.0]], dtype=dtype).repeat(1000, 1)
    result = turn_group_advantages(rewards, torch.ones(2000, 1, dtype=torch.bool))
    assert result.flatten().tolist() == [1.0, -1.0] * 1000


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 3)])
def test_without_active_decisions_there_are_only_zeros(shape):
    result = turn_group_advantages(torch.full(shape, NAN), torch.zeros(shape, dtype=torch.bool))
    assert result.shape == shape
    assert not result.any()


def test_the_arguments_are_left_as_they_are():
    rewards, active = torch.tensor([[1.0, NAN], [0.0, 2.0]]), torch.tensor([[True, False], [True, True]])
    before = rewards.clone(), active.clone()
    turn_group_advantages(rewards, active)
    torch.testing.assert_close((rewards, active), before, equal_nan=True)


# Laws


@given(batches(), st.integers(1, 6))
def test_it_is_eq_4(batch, min_active):
    close(advantages(*batch, min_active=min_active), brute_force(*batch, min_active=min_active))


@given(batches(), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 5.0, NAN, INF, -INF]))
def test_padding_changes_nothing(batch, more_rows, more_turns, garbage):
    rewards, active = batch
    rows, turns = len(rewards), len(rewards[0])
    wide = turns + more_turns
    padded = [[*row, *[garbage] * more_turns] for row in rewards] + [[garbage] * wide] * more_rows
    mask = [[*row, *[False] * more_turns] for row in active] + [[False] * wide] * more_rows
    result = advantages(padded, mask)
    close(result[:rows, :turns], advantages(rewards, active))
    assert not result[rows:].any()
    assert not result[:, turns:].any()


@given(batches(), st.sampled_from([1e30, NAN, INF, -INF]))
def test_rewards_of_inactive_entries_do_not_count(batch, garbage):
    rewards, active = batch
    dirty = [
        [r if a else garbage for r, a in zip(row, on, strict=True)] for row, on in zip(rewards, active, strict=True)
    ]
    assert torch.equal(advantages(dirty, active), advantages(rewards, active))


@given(batches(), st.randoms(use_true_random=False))
def test_the_order_of_trajectories_does_not_count(batch, random):
    rewards, active = batch
    order = list(range(len(rewards)))
    random.shuffle(order)
    close(
        advantages([rewards[i] for i in order], [active[i] for i in order]),
        advantages(rewards, active)[order],
    )


@given(batches(), st.integers(-100, 100), st.sampled_from([-4.0, -0.5, 0.25, 3.0, 1024.0]))
def test_shift_and_scale_of_the_rewards_do_not_count_but_their_sign_does(batch, shift, scale):
    rewards, active = batch
    moved = [[scale * reward + shift for reward in row] for row in rewards]
    close(advantages(moved, active, eps=0.0), math.copysign(1, scale) * advantages(rewards, active, eps=0.0))


@given(batches())
def test_a_turn_of_its_own_group_has_mean_zero_and_standard_deviation_one_or_none(batch):
    rewards, active = batch
    for turn, column in enumerate(advantages(rewards, active, eps=0.0).T):
        own = column[torch.tensor(active)[:, turn]]
        if len(own) >= 4:
            assert own.mean().item() == pytest.approx(0, abs=1e-9)
            assert own.std(correction=0).item() == pytest.approx(float(own.any()))


# Refused


@pytest.mark.parametrize("options", [{"min_active": 0}, {"eps": -1e-9}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        advantages([[1.0]], [[True]], **options)


@pytest.mark.parametrize("reward", [NAN, INF, -INF])
def test_an_active_reward_that_is_not_finite_is_refused(reward):
    with pytest.raises(ValueError, match="active rewards must be finite"):
        advantages([[reward], [0.0]], [[True], [True]])


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(2, 2\); pad both"):
        turn_group_advantages(torch.zeros(2, 3), torch.ones(2, 2, dtype=torch.bool))


# Whole trajectories


def test_the_advantages_of_whole_trajectories_are_those_of_grpo():
    # mean 2/5, population std sqrt(6)/5
    outcomes, active = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0]), torch.ones(5, dtype=torch.bool)
    up, down = 3 / math.sqrt(6), -2 / math.sqrt(6)
    close(trajectory_advantages(outcomes, active), [up, down, up, down, down])


def test_two_trajectories_are_a_group_of_their_own():
    assert trajectory_advantages(torch.tensor([3.0, 1.0]), torch.tensor([True, True]), eps=0.0).tolist() == [1, -1]


def test_trajectories_without_a_usable_outcome_do_not_count():
    outcomes, active = torch.tensor([1.0, NAN, 0.0, INF]), torch.tensor([True, False, True, False])
    close(trajectory_advantages(outcomes, active), [1, 0, -1, 0])


@given(st.lists(REWARDS, min_size=1, max_size=9))
def test_a_batch_of_one_turn_is_the_special_case(outcomes):
    column = torch.tensor(outcomes, dtype=torch.float64)
    active = torch.ones(len(outcomes), dtype=torch.bool)
    general = turn_group_advantages(column[:, None], active[:, None], min_active=1)[:, 0]
    assert torch.equal(trajectory_advantages(column, active), general)
    close(general, brute_force([[o] for o in outcomes], [[True]] * len(outcomes), min_active=1)[:, 0])


# Groups


def test_the_trajectories_of_each_prompt_are_compared_with_each_other_alone():
    rewards = [[1, 8], [3, 8], [10, 0], [20, 4]]
    # of the first prompt: mean 2, std 1, and no spread; of the second: mean 15, std 5, and mean 2, std 2
    expected = [[-1, 0], [1, 0], [-1, -1], [1, 1]]
    found = advantages(rewards, [[True] * 2] * 4, min_active=1, groups=torch.tensor([7, 7, -1, -1]))
    close(found, expected)


@given(batches(), st.data())
def test_groups_are_batches_of_their_own(batch, data):
    rewards, active = batch
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(rewards), max_size=len(rewards)))
    found = advantages(rewards, active, groups=torch.tensor(groups))
    for group in set(groups):
        own = [place for place, one in enumerate(groups) if one == group]
        close(found[own], brute_force([rewards[place] for place in own], [active[place] for place in own]))


def test_one_group_is_the_default():
    rewards, active = [[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], [[True, True], [True, False], [True, True]]
    assert torch.equal(advantages(rewards, active, groups=torch.zeros(3, dtype=int)), advantages(rewards, active))


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_group_for_something_else_is_refused():
    with pytest.raises(ValueError, match=r"one number for each trajectory, got \(2,\) for 3 trajectories"):
        advantages([[1.0]] * 3, [[True]] * 3, groups=torch.tensor([0, 1]))
