"""RLOO on episodes written by hand."""

from __future__ import annotations

from hf_credit.methods.rloo import OthersMean
from hf_credit.rollouts import Ending


def test_an_outcome_is_compared_with_the_mean_of_the_others(hand):
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 0.0, 1.0)]
    failed = hand.episode(hand.decision(), outcome=9.0, ending=Ending.ERROR)
    alone = hand.episode(hand.decision(), outcome=9.0)
    found = hand.credits(OthersMean(), *episodes, failed, alone, instances=(0, 0, 0, 0, 0, 1))
    assert found == [[0.667], [-0.667], [-0.667], [0.667], [None], [0]]
