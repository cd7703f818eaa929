"""IGPO and TRACE on episodes written by hand; `tests/credit/test_answers.py` has the mathematics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hf_credit.collectors.answers import ANSWER
from hf_credit.methods.igpo import InformationGains
from hf_credit.methods.trace import LogRatios, trace
from hf_credit.rollouts import Ending


def episode(hand, *probabilities, outcome, **values):
    """An episode before whose decisions the right answer has these probabilities; `None` for another role's."""
    decisions = [
        replace(hand.decision(), extras={} if one is None else {ANSWER: math.log(one)}, observed=one is None)
        for one in probabilities
    ]
    return hand.episode(*decisions, outcome=outcome, **values)


def test_turns_get_the_normalised_gains_that_follow(hand):
    # Rewards .25, 1 and .25: -.577, 1.155 and -.577, summed from each turn on.
    first, second = episode(hand, 0.25, 0.5, outcome=1.0), episode(hand, 0.25, outcome=0.25)
    failed = episode(hand, 0.9, outcome=9.0, ending=Ending.ERROR)
    assert hand.credits(InformationGains(), first, failed, second) == [[0.577, 1.155], [None], [-0.577]]
    assert hand.credits(InformationGains(normalise="separate"), first, second) == [[0.707, 0.707], [-0.707]]


def test_a_judge_between_two_turns_is_no_turn(hand):
    first, second = episode(hand, 0.25, None, 0.5, outcome=1.0), episode(hand, 0.25, outcome=0.25)
    assert hand.credits(InformationGains(), first, second) == [[0.577, None, 1.155], [-0.577]]


def test_a_turn_that_halves_the_gap_to_the_answer(hand):
    # Distances 2 and 1 (gap .5): log 2 = .693. Outcomes +-1; the window reaches the end: 2 x .8 x 1.
    first, second = [episode(hand, *map(math.exp, (-1.5, -0.5)), outcome=one) for one in (1.0, 0.0)]
    expected = [[round(1 + 0.2 * (math.log(2) + 1.6), 3), 1.0], [round(-1 + 0.2 * (math.log(2) - 1.6), 3), -1.0]]
    assert hand.credits(LogRatios(gap=0.5), first, second) == expected


def test_the_copy_of_trace_stays_that_of_the_start():
    assert trace().refresh_frozen_every == pytest.approx(1e6)
    assert trace(refresh_every=3).refresh_frozen_every == 3
