"""CARL on trees written by hand."""

from __future__ import annotations

from hf_credit.methods.carl import Branches
from hf_credit.rollouts import Ending


def test_the_worked_example(hand):
    # The start leads to v1, whose leaves are worth 1 and 0, and to v2, from which a chain leads to 0.
    to_v1, to_v2, good, bad, chain = (hand.decision() for _ in range(5))
    failed = hand.episode(to_v2, hand.decision(), outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(
        Branches(),
        hand.episode(to_v1, good, outcome=1.0),
        hand.episode(to_v1, bad, outcome=0.0),
        hand.episode(to_v2, chain, outcome=0.0),
        failed,
    )
    assert found == [[0.25, 0.5], [None, -0.5], [-0.25, None], [None, None]]


def test_each_task_has_its_tree(hand):
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 5.0)]
    assert hand.credits(Branches(), *episodes, instances=(0, 0, 1)) == [[0.5], [-0.5], [None]]
