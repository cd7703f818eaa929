"""Credit of turns against numbers worked out by hand, brute force and laws."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import (
    alive_advantages,
    all_turns_advantages,
    discounted_returns,
    full_mean,
    group_advantages,
    multi_turn_advantages,
    score_deltas,
    trajectory_advantages,
    turn_credit,
    turn_group_advantages,
)

FOUR = torch.zeros(4, dtype=torch.long)
OUTCOMES = torch.tensor([1.0, 0.0, 0.0, 0.0])


def near(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=1e-3, atol=1e-3)


def test_the_first_turn_has_its_own_score_and_the_outcomes():
    rewards = torch.tensor([[1.0, 9.0], [0.0, 9.0], [1.0, 9.0], [0.0, 9.0]])
    found = multi_turn_advantages(rewards, OUTCOMES, torch.ones(4, 2, dtype=torch.bool), FOUR)
    near(found, [[2.366, 1.5], [-1.366, -0.5], [0.366, -0.5], [-1.366, -0.5]])


def test_a_rollout_of_one_turn_has_the_score_of_both_together():
    # reward + outcome are 2, 0, 1, 0: mean 3/4, sample deviation .957
    rewards, active = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), torch.ones(4, 2).bool()
    active[1, 1] = active[2, 1] = False
    found = multi_turn_advantages(rewards, OUTCOMES, active, FOUR)
    near(found, [[2.366, 1.5], [-0.783, 0.0], [0.261, 0.0], [-1.366, -0.5]])


def test_every_turn_adds_what_follows_it():
    rewards = torch.tensor([[1.0, 0.0, 5.0], [0.0, 1.0, 5.0], [0.0, 0.0, 5.0], [2.0, 1.0, 5.0]])
    found = multi_turn_advantages(
        rewards, OUTCOMES, torch.ones(4, 3).bool(), FOUR, turn_weight=0.5, gamma=0.9, all_turns=True
    )
    first, second, last = (group_advantages(values, FOUR) for values in (*rewards[:, :2].T.contiguous(), OUTCOMES))
    near(found[:, 2], last)
    near(found[:, 1], 0.5 * second + 0.9 * last)
    near(found[:, 0], 0.5 * (first + 0.9 * second) + 0.81 * last)


def test_two_turns_are_the_case_of_all_turns():
    rewards, both = torch.tensor([[1.0, 3.0], [0.0, 4.0], [1.0, 5.0], [0.0, 6.0]]), torch.ones(4, 2).bool()
    found = multi_turn_advantages(rewards, OUTCOMES, both, FOUR, all_turns=True)
    near(found, multi_turn_advantages(rewards, OUTCOMES, both, FOUR))


def test_turns_are_compared_among_those_who_reached_them():
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    active = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0]]).bool()
    found = multi_turn_advantages(rewards, torch.zeros(4), active, FOUR, all_turns=True)
    near(found, [[0.707, 0.707, 0.0], [-0.707, -0.707, 0.0], [0, 0, 0], [0, 0, 0]])


def test_equal_rollouts_and_no_rollouts_get_nothing():
    whole = torch.ones(4, 2, dtype=torch.long)
    for all_turns in False, True:
        found = multi_turn_advantages(whole, torch.ones(4), torch.ones(4, 2).bool(), FOUR, all_turns=all_turns)
        assert found.dtype == torch.float32
        assert not found.any()
        nothing = torch.zeros(0, 1), torch.zeros(0), torch.zeros(0, 1).bool(), torch.zeros(0).long()
        assert multi_turn_advantages(*nothing, all_turns=all_turns).shape == (0, 1)


@pytest.mark.parametrize("options", [{"turn_weight": -1.0}, {"gamma": 1.1}])
def test_what_is_not_possible_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        multi_turn_advantages(torch.zeros(4, 1), OUTCOMES, torch.ones(4, 1).bool(), FOUR, **options)


# A rollout goes on with probability .3, which pays 1, and then goes on again with probability .6, which pays .5.
# Stopping at once is worth .2, stopping later .1, never stopping .4. Each is (probability, rewards, outcome, actions).
FIRST, SECOND = 0.3, 0.6
STORIES = [
    (1 - FIRST, (0.0,), 0.2, (False,)),
    (FIRST * (1 - SECOND), (1.0, 0.0), 0.1, (True, False)),
    (FIRST * SECOND, (1.0, 0.5), 0.4, (True, True)),
]
# d/d logit of the expected return: .3 * .7 * (1 + .6 * .9 + .4 * .1 - .2), and .3 * .6 * .4 * (.9 - .1)
TRUE_GRADIENT = (0.2898, 0.0576)


def per_index_mean(rewards, outcomes, active, groups):
    """Each reward less the mean of its turn over those who went on there, summed from the turn on; and the outcome."""
    centred = torch.zeros_like(rewards)
    for turn in range(rewards.shape[1]):
        went_on = rewards[:, turn] > 0
        centred[went_on, turn] = full_mean(rewards[went_on, turn], groups[went_on])
    return discounted_returns(centred, active, 1.0) + full_mean(outcomes, groups)[:, None]


def nothing_when_alone(rewards, outcomes, active, groups):
    """`alive_advantages`, but 0 where nobody else reached the turn."""
    found = alive(rewards, outcomes, active, groups)
    return torch.where(active.sum(dim=0) > 1, found, 0)


def alive(rewards, outcomes, active, groups):
    return alive_advantages(with_outcomes(rewards, outcomes, active), active, groups)


def with_outcomes(rewards, outcomes, active):
    """The rewards, the outcome paid with the last turn."""
    paid = rewards.clone()
    paid[torch.arange(len(paid)), active.sum(dim=1) - 1] += outcomes
    return paid


def expected_gradient(estimate, rollouts=4):
    """The mean over all groups of so many rollouts of the estimated gradient of the two logits."""
    total = torch.zeros(2, dtype=torch.float64)
    for group in itertools.product(STORIES, repeat=rollouts):
        rewards, active = torch.zeros(rollouts, 2, dtype=torch.float64), torch.zeros(rollouts, 2, dtype=torch.bool)
        scores = torch.zeros_like(rewards)
        for row, (_, paid, _, actions) in enumerate(group):
            rewards[row, : len(paid)], active[row, : len(paid)] = torch.tensor(paid).double(), True
            for turn, (on, chance) in enumerate(zip(actions, (FIRST, SECOND), strict=False)):
                scores[row, turn] = 1 - chance if on else -chance
        outcomes = torch.tensor([outcome for _, _, outcome, _ in group], dtype=torch.float64)
        credit = estimate(rewards, outcomes, active, torch.zeros(rollouts, dtype=torch.long))
        total += math.prod(story[0] for story in group) * (credit * scores).sum(dim=0) / rollouts
    return total.tolist()


@pytest.mark.parametrize("estimate", [alive, all_turns_advantages])
@pytest.mark.parametrize("rollouts", [1, 2, 4])
def test_the_expected_gradient_is_the_true_one(estimate, rollouts):
    assert expected_gradient(estimate, rollouts) == pytest.approx(TRUE_GRADIENT, abs=1e-12)


def test_a_mean_for_each_turn_is_biased_and_so_is_nothing_when_alone():
    assert expected_gradient(per_index_mean) == pytest.approx((0.0126, 0.0162), abs=5e-5)
    assert expected_gradient(nothing_when_alone) == pytest.approx((0.2898, 0.0378), abs=5e-5)


def test_going_on_is_credited_where_it_pays():
    # Two go on, which pays 1, and stop then; two stop at once.
    rewards = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    active = torch.tensor([[True, True], [True, True], [True, False], [True, False]])
    groups, nothing = torch.zeros(4).long(), torch.zeros(4)
    expected = torch.tensor([[2 / 3, 0], [2 / 3, 0], [-2 / 3, 0], [-2 / 3, 0]])
    assert not per_index_mean(rewards, nothing, active, groups).any()
    torch.testing.assert_close(alive_advantages(rewards, active, groups), expected)
    torch.testing.assert_close(all_turns_advantages(rewards, nothing, active, groups), expected)


def test_only_rollouts_of_one_group_that_reached_the_turn_are_compared():
    rewards = torch.tensor([[1.0, 4.0], [3.0, 0.0], [10.0, 2.0], [20.0, 6.0]])
    active = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
    found = alive_advantages(rewards, active, torch.tensor([-5, -5, 9, 9]))
    assert found.tolist() == [[2, 4], [-2, 0], [-14, -4], [14, 4]]


def test_turns_that_were_not_reached_paid_nothing():
    rewards, active = torch.tensor([[1.0, 4.0], [3.0, 7.0]]), torch.tensor([[True, True], [True, False]])
    found = all_turns_advantages(rewards, torch.tensor([0.5, 2.0]), active, torch.tensor([1, 1]))
    assert found.tolist() == [[0.5, 2.5], [-0.5, 0]]


def test_integers_are_promoted_and_no_rollouts_have_no_credit():
    whole, active, groups = torch.tensor([[1], [0]]), torch.ones(2, 1).bool(), torch.zeros(2).long()
    assert alive_advantages(whole, active, groups).tolist() == [[1.0], [-1.0]]
    assert alive_advantages(whole, active.long(), groups).tolist() == [[1.0], [-1.0]]
    assert all_turns_advantages(whole.bool(), torch.tensor([1, 0]), active, groups).tolist() == [[2.0], [-2.0]]
    empty, none = torch.zeros(0, 1), torch.zeros(0).long()
    assert alive_advantages(empty, empty.bool(), none).shape == (0, 1)
    assert all_turns_advantages(empty, torch.zeros(0), empty.bool(), none).shape == (0, 1)


# One rollout of four turns with reward 1, and a sibling of one turn with reward 0 and no score.
SCORES = torch.tensor([[0.0, 9.0, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
KNOWN = torch.tensor([[True, False, True, True], [False] * 4])
ACTIVE = torch.tensor([[True] * 4, [True, False, False, False]])
REWARDS, GROUPS = torch.tensor([1.0, 0.0]), torch.tensor([4, 4])


def test_a_turn_changes_the_last_score_that_is_known():
    assert score_deltas(SCORES, KNOWN).tolist() == [[0, 0, 1, -0.5], [0, 0, 0, 0]]
    whole = torch.tensor([[True, False, True]]), torch.tensor([[True, True, True]])
    assert score_deltas(*whole).tolist() == [[0, -1, 1]]
    assert score_deltas(torch.zeros(0, 1), torch.zeros(0, 1).bool()).shape == (0, 1)


def test_the_worked_example():
    deltas = score_deltas(SCORES, KNOWN)
    found = turn_credit(deltas, REWARDS, ACTIVE, torch.ones(2, 4), GROUPS, gamma=0.5)
    # c = .110, .219, .438, -.267 with mean .125; level .75
    expected = torch.tensor([[0.734, 0.844, 1.063, 0.358], [-0.75, 0, 0, 0]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_without_spreading_every_turn_has_the_level_and_it_holds_the_deltas():
    found = turn_credit(score_deltas(SCORES, KNOWN), REWARDS, ACTIVE, torch.ones(2, 4), GROUPS, beta=0.0)
    assert found.tolist() == [[0.75] * 4, [-0.75, 0, 0, 0]]


def test_spreading_moves_credit_between_turns_and_none_between_rollouts():
    tokens = torch.tensor([[3, 1, 5, 2], [4, 0, 0, 0]])
    found = turn_credit(score_deltas(SCORES, KNOWN), REWARDS, ACTIVE, tokens, GROUPS, gamma=0.7, beta=2.0)
    means = (found * tokens).sum(dim=1) / tokens.sum(dim=1)
    torch.testing.assert_close(means, torch.tensor([0.75, -0.75]))


def test_equal_rollouts_and_no_rollouts_get_no_turn_credit():
    found = turn_credit(
        torch.zeros(3, 2), torch.full((3,), 0.1), torch.ones(3, 2).bool(), torch.ones(3, 2), torch.zeros(3).long()
    )
    assert not found.any()
    empty = torch.zeros(0, 1)
    assert turn_credit(empty, empty[:, 0], empty.bool(), empty, torch.zeros(0).long()).shape == (0, 1)


@pytest.mark.parametrize("options", [{"gamma": -0.1}, {"beta": -1.0}])
def test_turn_credit_refuses_what_is_not_possible(options):
    with pytest.raises(ValueError, match="must be"):
        turn_credit(torch.zeros(2, 4), REWARDS, ACTIVE, torch.ones(2, 4), GROUPS, **options)


NAN, INF = math.nan, math.inf

# Multiples of 1/8 are exact, so equal rewards stay equal under a shift.
EIGHTHS = st.integers(-80, 80).map(lambda eighths: eighths / 8)


@st.composite
def batches(draw):
    """(rewards, active) as nested lists; activity need not come first in a row."""
    rows, turns = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    matrix = st.lists(st.lists(EIGHTHS, min_size=turns, max_size=turns), min_size=rows, max_size=rows)
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


@given(st.lists(EIGHTHS, min_size=1, max_size=9))
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
