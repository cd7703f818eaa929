"""GiGPO on episodes written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_credit import make
from hf_credit.methods.gigpo import GroupInGroup
from hf_credit.rollouts import Ending, EnvironmentInteraction, LocalContext

A, B = 7, 8


def example(hand):
    """The first sees A, B and A again and has outcome 1; the second sees A and has outcome 0."""
    first = [hand.decision(A), hand.decision(B), hand.decision(A, reward=1.0)]
    return hand.episode(*first, outcome=1.0), hand.episode(hand.decision(A), outcome=0.0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # The A's are compared with the other episode's: .81 and 1 against their means with 0, and 0 with both.
        ({}, [[0.905, 0.5, 1.0], [-1.103]]),
        ({"repeats": True}, [[0.707, 0.5, 0.897], [-1.103]]),
        ({"repeats": True, "by_steps": True}, [[0.457, 0.25, 0.647], [-1.353]]),
        ({"repeats": True, "by_steps": True, "normalise": True}, [[0.889, 0.5, 1.247], [-2.636]]),
        ({"weight": 0.0}, [[0.5, 0.5, 0.5], [-0.5]]),
    ],
)
def test_the_worked_example(hand, options, expected):
    assert hand.credits(GroupInGroup(anchor="context", gamma=0.9, **options), *example(hand)) == expected


def test_without_step_rewards_the_last_step_has_the_outcome(hand):
    (first, second), estimator = example(hand), GroupInGroup(anchor="context", gamma=0.9)
    silent = hand.episode(*(replace(one, reward=0.0) for one in first.decisions), outcome=1.0)
    assert hand.credits(estimator, silent, second) == hand.credits(estimator, first, second)


def test_other_tasks_and_other_events_are_other_states(hand):
    first, second = example(hand)
    estimator = GroupInGroup(anchor="context", gamma=0.9)
    # Of two tasks no episode has a sibling, and no step another than its own episode's.
    assert hand.credits(estimator, first, second, instances=(0, 1)) == [[0, 0, 0], [0]]
    asked = hand.episode(*(replace(one, event="other") for one in second.decisions), outcome=0.0)
    assert hand.credits(estimator, first, asked) == [[0.5, 0.5, 0.5], [-0.5]]


def test_a_failed_episode_is_not_compared(hand):
    failed = hand.episode(hand.decision(A), hand.decision(A, reward=50.0), outcome=50.0, ending=Ending.ERROR)
    first, second = example(hand)
    found = hand.credits(GroupInGroup(anchor="context", gamma=0.9), first, failed, second)
    assert found == [[0.905, 0.5, 1.0], [None, None], [-1.103]]


def test_an_observation_is_the_last_message(hand):
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="append", instructions=False)
    here = interaction.start({"seed": 1}, 1)
    there = replace(here, transcript=(("user", "another way"), ("assistant", "came here"), *here.transcript), turns=1)
    context = LocalContext()
    context.interaction = interaction
    states = [replace(hand.decision(place), state=state) for place, state in enumerate((here, there))]
    played = hand.collected(hand.episode(states[0], outcome=1.0), hand.episode(states[1], outcome=0.0))
    for estimator, expected in (GroupInGroup(), [1.0, -1.0]), (GroupInGroup(anchor="state"), [0.5, -0.5]):
        assert list(estimator(played, context, None).decisions.values()) == expected
