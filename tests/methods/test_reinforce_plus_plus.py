"""REINFORCE++ on episodes written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_credit import methods
from hf_credit.collectors import Group, Single
from hf_credit.methods.reinforce_plus_plus import WhitenedReturns
from hf_credit.rollouts import Ending

PROMPTS = {"instances": (0, 0, 1, 1)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.5, -1.5, 0.5, 0.5]),
        ({"group_mean": True}, [1.225, -1.225, 0, 0]),
        ({"correction": 0}, [0.577, -1.732, 0.577, 0.577]),
        ({"correction": 0, "group_mean": True}, [1.414, -1.414, 0, 0]),
    ],
)
def test_the_worked_example(hand, options, expected):
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 1.0, 1.0)]
    assert hand.credits(WhitenedReturns(**options), *episodes, **PROMPTS) == [[value] for value in expected]


def test_the_weight_of_an_episode_is_its_number_of_tokens(hand):
    # Four tokens of returns 1, 0, 1, 1 again: three of one episode, over two decisions.
    long = hand.episode(hand.decision(tokens=2), hand.decision(tokens=1), outcome=1.0)
    assert hand.credits(WhitenedReturns(), long, hand.episode(hand.decision(), outcome=0.0)) == [[0.5, 0.5], [-1.5]]


def test_with_a_discount_every_token_has_its_credit(hand):
    # Returns .25, .5, 1 and 0: mean .4375, squared deviations .0352 + .0039 + .3164 + .1914, over three .1823
    long = hand.episode(hand.decision(tokens=1), hand.decision(tokens=2), outcome=1.0)
    failed = hand.episode(hand.decision(), outcome=8.0, ending=Ending.ERROR)
    short = hand.episode(hand.decision(), outcome=0.0)
    found = hand.credits(WhitenedReturns(gamma=0.5), long, failed, short)
    assert found == [[(-0.439,), (0.146, 1.317)], [None], [(-1.025,)]]


def test_tokens_that_are_not_trained_are_in_no_mean(hand):
    masked = replace(hand.decision(tokens=98), trained=False)
    episodes = hand.episode(hand.decision(), masked, outcome=0.0), hand.episode(hand.decision(), outcome=1.0)
    assert [one[0] for one in hand.credits(WhitenedReturns(), *episodes)] == [-0.707, 0.707]


def test_groups_are_played_if_they_are_compared():
    assert methods.make("reinforce_plus_plus").collector == Single()
    assert methods.make("reinforce_plus_plus", group_size=4, group_mean=True).collector == Group(size=4)


def test_a_mean_of_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="group_size must be at least 2 with group_mean=True, got 1"):
        methods.make("reinforce_plus_plus", group_mean=True)
