"""Turn credit on episodes written by hand."""

from __future__ import annotations

import pytest

from hf_credit import methods
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
    # Deltas 0 and 1 give c = 1/3 and 2/3 at gamma 1/2 (weights 1 and 1/2 over 3/2): mean 5/12 over 3 and 1 tokens.
    scored = [hand.decision(tokens=3, reward=0.0), hand.decision(tokens=1, reward=1.0)]
    found = hand.credits(SpreadDeltas(gamma=0.5), hand.episode(*scored, outcome=0.0), hand.episode(outcome=1.0))
    assert found == [[round(1 / 3 - 5 / 12, 3), 0.25], []]


@pytest.mark.parametrize("options", [{"turn_scores": "judge"}, {"gamma": 2.0}, {"beta": -1.0}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        methods.make("turn_credit", **options)
