"""GRPO on episodes written by hand."""

from __future__ import annotations

import pytest

from hf_credit import methods
from hf_credit.methods.grpo import GroupScore
from hf_credit.rollouts import Ending


def test_every_decision_has_the_score_of_its_episode_among_its_task(hand):
    first = [hand.episode(hand.decision(), hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 0.0, 0.0)]
    second = [hand.episode(hand.decision(), outcome=outcome) for outcome in (7.0, 7.0)]
    failed = hand.episode(hand.decision(), outcome=100.0, ending=Ending.ERROR)
    found = hand.credits(GroupScore(), *first, *second, failed, instances=(0, 0, 0, 0, 1, 1, 1))
    assert found == [[1.5, 1.5], [-0.5, -0.5], [-0.5, -0.5], [-0.5, -0.5], [0], [0], [None]]


def test_the_scale_is_an_option(hand):
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 3.0, 0.0)]
    groups = {"instances": (0, 0, 1, 1)}
    assert hand.credits(GroupScore(scale="none"), *episodes, **groups) == [[0.5], [-0.5], [1.5], [-1.5]]
    assert hand.credits(GroupScore(scale="batch"), *episodes, **groups) == [[0.354], [-0.354], [1.061], [-1.061]]


@pytest.mark.parametrize("options", [{"scale": "max"}, {"eps": 0.0}, {"group_size": 1}])
def test_what_is_not_possible_is_refused(options):
    with pytest.raises(ValueError, match="must"):
        methods.make("grpo", **options)
