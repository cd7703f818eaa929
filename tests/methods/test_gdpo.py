"""GDPO on episodes written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hf_credit.credit import decoupled_advantages, group_advantages
from hf_credit.methods.gdpo import Decoupled
from hf_credit.rollouts import Ending

BOTH = {"outcome": 1.0, "format": 1.0}


def episode(hand, outcome, tidy=None, **values):
    metrics = {} if tidy is None else {"format": tidy}
    return replace(hand.episode(hand.decision(), outcome=outcome, **values), metrics=metrics)


def test_rewards_that_grpo_takes_for_equal_are_told_apart(hand):
    # Two tasks with two episodes each, whose sums are 0, 1 and 0, 2. In its group a reward that differs is -+ .707, so
    # the sums are -+ .707 and -+ 1.414, whose sample deviation is sqrt(5/3) = 1.291. GRPO has -+ .707 for all.
    played = [episode(hand, 0.0, 1.0), episode(hand, 1.0, 1.0), episode(hand, 0.0, 0.0), episode(hand, 1.0, 1.0)]
    found = hand.credits(Decoupled(rewards=BOTH), *played, instances=(0, 0, 1, 1))
    assert found == [[-0.548], [0.548], [-1.095], [1.095]]


def test_a_weight_scales_a_reward_after_its_normalisation(hand):
    # outcomes -+ .707 in both groups; the format counts 2 of them in the second: -+ .707, -+ 2.121, deviation 1.826
    played = [episode(hand, 0.0, 1.0), episode(hand, 1.0, 1.0), episode(hand, 0.0, 0.0), episode(hand, 9.0, 5.0)]
    found = hand.credits(Decoupled(rewards={**BOTH, "format": 2.0}), *played, instances=(0, 0, 1, 1))
    assert found == [[-0.387], [0.387], [-1.162], [1.162]]


def test_a_single_reward_in_one_group_is_grpo():
    outcomes, groups = torch.tensor([1.0, 0.0, 0.0, 3.0], dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    found = decoupled_advantages(outcomes[:, None], groups, torch.ones(1), eps=1e-9)
    torch.testing.assert_close(found, group_advantages(outcomes, groups, eps=1e-9))
    assert decoupled_advantages(torch.ones(3, 2), groups[:3], torch.ones(2)).tolist() == [0.0] * 3


def test_an_episode_without_a_metric_is_not_compared_by_it(hand):
    # outcomes 1.155, -.577, -.577, formats of the first two -+ .707: sums .4476, .1298, -.5774 of deviation .5247
    played = [episode(hand, 1.0, 0.0), episode(hand, 0.0, 1.0), episode(hand, 0.0)]
    failed = episode(hand, 9.0, 9.0, ending=Ending.ERROR)
    assert hand.credits(Decoupled(rewards=BOTH), *played, failed) == [[0.853], [0.247], [-1.1], [None]]


def test_an_update_in_which_no_episode_has_a_metric_compares_by_the_other_rewards(hand):
    """As with a speed that only solved episodes report, and none is solved."""
    played = [episode(hand, 1.0), episode(hand, 0.0)]
    assert hand.credits(Decoupled(rewards={**BOTH, "speed": 3.0}), *played) == [[0.707], [-0.707]]
    assert hand.credits(Decoupled(rewards={"speed": 1.0}), *played) == [[0], [0]]


def test_at_least_one_reward_is_named(hand):
    with pytest.raises(ValueError, match="must name at least one"):
        Decoupled(rewards={})
