"""Conversions between episodes and matrices of turns."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from hf_credit import methods
from hf_credit.collectors import Group, Single, Verified
from hf_credit.credit import pad_to_matrix
from hf_credit.methods.base import verdict_score
from hf_credit.methods.groups import Turns, step_rewards
from hf_credit.rollouts import Ending


def at_once(hand, *rewards):
    """Simultaneous decisions of different roles."""
    state = object()
    return [
        replace(hand.decision(reward=reward, verdict=reward), role=str(place), event=str(place), state=state)
        for place, reward in enumerate(rewards)
    ]


def test_the_last_step_has_the_rest_of_the_outcome(hand):
    first, last = hand.decision(reward=1.0), hand.decision(reward=0.5)
    assert step_rewards(hand.episode(first, last, outcome=1.5)) == [1.0, 0.5]
    assert step_rewards(hand.episode(first, last, outcome=2.0)) == [1.0, 1.0]
    assert step_rewards(hand.episode(hand.decision(), hand.decision(), outcome=3.0)) == [0.0, 3.0]
    assert step_rewards(hand.episode(outcome=3.0)) == []
    assert step_rewards(replace(hand.episode(first, last, outcome=2.0), earned=0.5)) == [1.0, 0.5]


def test_simultaneous_decisions_are_one_turn_with_one_reward(hand):
    both = at_once(hand, 0.5, 0.5)
    later = hand.decision(reward=0.25)
    assert step_rewards(hand.episode(*both, later, outcome=1.0)) == [0.5, 0.5]
    judged = hand.episode(*at_once(hand, 1.0, 0.5), hand.decision())
    assert [verdict_score(step) for step in judged.steps] == pytest.approx([0.75, math.nan], nan_ok=True)


def test_the_mask_of_a_padded_matrix():
    values, there = pad_to_matrix([[1.0, None], [], [None, 2.0, 0.0]])
    assert values.tolist() == [[1, 0, 0], [0, 0, 0], [0, 2, 0]]
    assert there.tolist() == [[True, False, False], [False] * 3, [False, True, True]]
    assert pad_to_matrix([])[0].shape == (0, 1)


def test_the_credit_of_a_turn_is_that_of_all_its_decisions(hand):
    played = hand.collected(
        hand.episode(*at_once(hand, 0.0, 0.0), hand.decision()), hand.episode(hand.decision(), ending=Ending.ERROR)
    )
    assert list(Turns(played, [0]).credit(torch.tensor([[1.0, 2.0, 9.0]])).values()) == [1.0, 1.0, 2.0]


@pytest.mark.parametrize("name", ["arew", "mt_grpo", "turn_credit"])
def test_scores_are_rewards_or_verdicts(name):
    made = [methods.make(name, group_size=4, turn_scores=source) for source in ("reward", "score", "verdict")]
    *numbers, judged = made
    for plain in numbers:
        assert (plain.collector, plain.evaluation) == (Group(size=4), Single())
    assert (judged.collector, judged.evaluation) == (Verified(inner=Group(size=4)), Verified(required=False))
