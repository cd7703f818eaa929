"""Baselines of turns: numbers worked out by hand, and bias by enumeration of a game in which the policy stops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from hf_credit.credit import alive_advantages, all_turns_advantages, discounted_returns, full_mean

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
