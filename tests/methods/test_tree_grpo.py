"""Tree-GRPO on trees written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods.tree_grpo import TreeScore
from hf_credit.rollouts import Ending, LocalContext, by_episode


def test_the_worked_example(hand):
    # Two trees of a trunk with two leaves each, with outcomes (1, 0) and (0, 0), and a leaf that failed.
    samples = []
    for outcomes in (1.0, 0.0), (0.0, 0.0):
        trunk, ends = hand.decision(), [hand.decision(), hand.decision()]
        first, second = (hand.episode(trunk, end, outcome=one) for end, one in zip(ends, outcomes, strict=True))
        samples += [
            Rollout(episode=first, instance=0),
            Rollout(episode=replace(second, prefix_length=1), instance=0, source=ends[0].id),
        ]
    failed = hand.episode(hand.decision(), outcome=9.0, ending=Ending.ERROR)
    samples.append(Rollout(episode=failed, instance=0, source=samples[0].source))
    credit = TreeScore()(RolloutBatch(rollouts=tuple(samples), rows=1), LocalContext())
    found = by_episode([sample.episode for sample in samples], credit.decisions)
    expected = [[0.5, 2.207], [None, -1.207], [-0.5, -0.5], [None, -0.5], [None]]
    for own, wanted in zip(found, expected, strict=True):
        assert own == pytest.approx(wanted, abs=1e-3)
