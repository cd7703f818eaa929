"""Turn credit on episodes written by hand."""

from __future__ import annotations

import pytest

from hf_credit.methods.turn_credit import SpreadDeltas
from hf_credit.rollouts import Ending


def test_the_worked_example(hand):
    scored = [hand.decision(verdict=score) for score in (0.0, None, 1.0, 0.5)]
    failed = hand.episode(hand.decision(verdict=1.0), outcome=9.0, ending=Ending.ERROR)
    sibling = hand.episode(hand.decision(), outcome=0.0)
    estimator = SpreadDeltas(turn_scores="verdict", gamma=0.5)
    found = hand.credits(estimator, hand.episode(*scored, outcome=1.0), failed, sibling)
    assert found == [[0.735, 0.844, 1.063, 0.358], [None], [-0.75]]


def test_the_mean_is_taken_over_tokens(hand):
    # Rewards 0 and 1 give c = 1/3 and 2/3 at gamma 1/2 (weights 1 and 1/2 over 3/2): mean 5/12 over 3 and 1 tokens.
    scored = [hand.decision(tokens=3, reward=0.0), hand.decision(tokens=1, reward=1.0)]
    found = hand.credits(SpreadDeltas(gamma=0.5), hand.episode(*scored, outcome=1.0), hand.episode(outcome=1.0))
    assert found == [[round(1 / 3 - 5 / 12, 3), 0.25], []]


def traces(hand, *rewards):
    """Episodes whose rewards add up to their outcomes."""
    return [hand.episode(*(hand.decision(reward=one) for one in own), outcome=sum(own)) for own in rewards]


def test_rewards_are_increments_of_an_outcome_that_counts_them_once(hand):
    # The level is 0. With gamma .9 a reward in the second turn is shared as .9/1.9 and 1/1.9, less their mean of 1/2.
    assert hand.credits(SpreadDeltas(), *traces(hand, [1, 0], [0, 1])) == [[0.5, -0.5], [-0.026, 0.026]]
    assert hand.credits(SpreadDeltas(), *traces(hand, [1, 0], [0, 0])) == [[1, 0], [-0.5, -0.5]]
    # Of rewards at the end alone the level is that of the outcome, however long the episode: 1/3, 1/3 and -2/3.
    found = hand.credits(SpreadDeltas(), *traces(hand, [1], [0, 1], [0, 0]))
    assert found == [[0.333], [0.307, 0.36], [-0.667, -0.667]]


def test_a_score_is_a_level_whose_changes_are_distributed(hand):
    scored = [hand.decision(reward=score) for score in (0.5, 0.5, 1.0)]
    episodes = hand.episode(*scored, outcome=0.0), hand.episode(hand.decision(reward=1.0), outcome=0.0)
    # One change, of 1/2 in the last turn; the first known score is no change. The level is 1/4 of both sides.
    flat = hand.credits(SpreadDeltas(turn_scores="score", beta=0.0), *episodes)
    assert flat == [[0.25, 0.25, 0.25], [-0.25]]
    shares = [0.5 * weight / 2.71 for weight in (0.81, 0.9, 1.0)]
    found = hand.credits(SpreadDeltas(turn_scores="score"), *episodes)
    assert found[0] == pytest.approx([0.25 + one - 0.5 / 3 for one in shares], abs=1e-3)
