"""The baselines per turn on episodes written by hand; the tests of `hf_credit.credit` show that they are unbiased."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_credit.methods.turn_baselines import AliveMean, AllTurnsMean
from hf_credit.rollouts import Ending


@pytest.mark.parametrize("estimator", [AliveMean(), AllTurnsMean()])
def test_continuing_is_credited_if_it_increases_the_return(hand, estimator):
    on = [hand.episode(hand.decision(reward=1.0), hand.decision(), outcome=1.0) for _ in range(2)]
    stop = [hand.episode(hand.decision(), outcome=0.0) for _ in range(2)]
    failed = hand.episode(hand.decision(reward=9.0), outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(estimator, *on, *stop, failed)
    assert found == [[0.667, 0], [0.667, 0], [-0.667], [-0.667], [None]]


def test_the_baselines_differ_in_the_episodes_compared_at_a_later_turn(hand):
    on = hand.episode(hand.decision(reward=1.0), hand.decision(reward=0.5), outcome=1.9)
    off = hand.episode(hand.decision(reward=1.0), hand.decision(reward=0.0), outcome=1.1)
    stop = hand.episode(hand.decision(), outcome=0.2)
    # What the outcome adds is .4, .1 and .2; of the second turn .9 and .1 follow.
    assert hand.credits(AliveMean(), on, off, stop) == [[1.25, 0.8], [0.05, -0.8], [-1.3]]
    assert hand.credits(AllTurnsMean(), on, off, stop) == [[1.25, 0.75], [0.05, -0.45], [-1.3]]


def test_a_reward_of_another_role_is_no_return_of_the_turns_after_it(hand):
    def episode(theirs):
        rewards = (0.0, False), (theirs, True), (0.0, False)
        steps = [replace(hand.decision(reward=one), observed=own, step=at) for at, (one, own) in enumerate(rewards)]
        return hand.episode(*steps, outcome=theirs)

    for estimator in (AliveMean(), AllTurnsMean()):
        found = hand.credits(estimator, episode(1.0), episode(0.0))
        assert [own[::2] for own in found] == [[1.0, 0.0], [-1.0, 0.0]]
