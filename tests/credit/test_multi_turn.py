"""MT-GRPO against numbers worked out by hand and its sum written out."""

from __future__ import annotations

import pytest
import torch

from hf_credit.credit import group_advantages, multi_turn_advantages

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
