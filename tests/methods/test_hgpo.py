"""HGPO on episodes written by hand."""

from __future__ import annotations

import pytest
import torch

from hf_credit.credit import nested_group_advantages
from hf_credit.methods.gigpo import GroupInGroup
from hf_credit.methods.hgpo import NestedGroups
from hf_credit.rollouts import Ending

A, B, C = 7, 8, 9


def example(hand):
    """Three episodes of one task with outcomes 1, 0 and 0: they see A and B, A and B, C and B."""
    seen = [((A, B), 1.0), ((A, B), 0.0), ((C, B), 0.0)]
    return [hand.episode(*map(hand.decision, states), outcome=outcome) for states, outcome in seen]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # At A: 1 and 0, +-.5. At B: 2/3, -1/3, -1/3; with A before it +-.5. C is alone.
        # B of the first: (1 x 2/3 + 2 x 1/2) / 3 = .556; of the second (-1/3 - 2 x 1/2) / 3 = -.444.
        ({}, [[0.5, 0.556], [-0.5, -0.444], [0.0, -0.333]]),
        ({"offset": 2.0}, [[0.5, 0.567], [-0.5, -0.433], [0.0, -0.333]]),  # weights 2 and 3
        ({"alpha": 2.0}, [[0.5, 0.533], [-0.5, -0.467], [0.0, -0.333]]),  # weights 1 and 4
        ({"alpha": 0.0}, [[0.5, 0.583], [-0.5, -0.417], [0.0, -0.333]]),
        ({"history": 0}, [[0.5, 0.667], [-0.5, -0.333], [0.0, -0.333]]),
        # deviations .5 and sqrt(2)/3 = .471: 1.414, -.707, -.707 at B
        ({"normalise": True}, [[1.0, 1.138], [-1.0, -0.902], [0.0, -0.707]]),
    ],
)
def test_the_worked_example(hand, options, expected):
    estimator = NestedGroups(**{"anchor": "context", "gamma": 1.0, "normalise": False, **options})
    assert hand.credits(estimator, *example(hand)) == expected


def test_without_history_it_is_the_step_advantage_of_gigpo(hand):
    steps = NestedGroups(anchor="context", history=0, normalise=False)
    episodes = [*example(hand), hand.episode(hand.decision(A), hand.decision(A), outcome=0.5)]
    both, whole = (hand.credits(GroupInGroup(anchor="context", weight=one), *episodes) for one in (1.0, 0.0))
    parts = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(both, whole, strict=True)]
    for found, expected in zip(hand.credits(steps, *episodes), parts, strict=True):
        assert found == pytest.approx(expected, abs=2e-3)


def test_a_level_without_an_advantage_has_no_weight():
    # The second level's returns are equal, so that only the first counts.
    returns, anchors = torch.tensor([1.0, 1.0, 4.0]), torch.tensor([[0, 1], [0, 1], [0, -1]])
    assert nested_group_advantages(returns, anchors, normalise=False).tolist() == [-1.0, -1.0, 2.0]


def test_a_state_that_recurs_in_an_episode_changes_no_deviation():
    # One episode returns 1 three times, the other 0: advantages 1/2 and -3/4, deviation sqrt(3)/4.
    returns, anchors, episodes = torch.tensor([1.0, 1, 1, 0]), torch.zeros(4, 1).long(), torch.tensor([0, 0, 0, 1])
    found = nested_group_advantages(returns, anchors, episodes=episodes[:, None])
    assert found.tolist() == pytest.approx([2 / 3**0.5] * 3 + [-(3**0.5)], rel=1e-5)


def test_other_tasks_and_failed_episodes_are_not_compared(hand):
    first, second, third = example(hand)
    failed = hand.episode(hand.decision(A), outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(NestedGroups(anchor="context"), first, second, failed, third, instances=(0, 1, 0, 2))
    assert found == [[0, 0], [0, 0], [None], [0, 0]]
