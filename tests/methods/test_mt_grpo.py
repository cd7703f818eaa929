"""MT-GRPO on episodes written by hand."""

from __future__ import annotations

import pytest

from hf_credit import methods
from hf_credit.collectors import Group, Verified
from hf_credit.methods.mt_grpo import MultiTurn
from hf_credit.rollouts import Ending

EXAMPLE = ((1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (0.0, 0.0))  # reward of the first turn, outcome next to it


@pytest.mark.parametrize("source", ["reward", "verdict"])
def test_the_worked_example(hand, source):
    episodes = [
        hand.episode(
            hand.decision(**{source: turn}),
            hand.decision(),
            hand.decision(),
            outcome=outcome + turn * (source == "reward"),
        )
        for turn, outcome in EXAMPLE
    ]
    failed = hand.episode(hand.decision(**{source: 9.0}), outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(MultiTurn(turn_scores=source), *episodes, failed)
    first = [2.366, -1.366, 0.366, -1.366]
    # 1.4997 and -.4999 by the 1e-4 that is added to deviations
    assert [own[0] for own in found[:4]] == pytest.approx(first, abs=1e-3)
    assert [own[1:] for own in found] == [[1.5, 1.5], *[[-0.5, -0.5]] * 3, []]
    assert found[4] == [None]


def test_all_turns_include_later_turns(hand):
    episodes = [
        hand.episode(
            hand.decision(reward=turn), hand.decision(reward=turn), hand.decision(), outcome=outcome + 2 * turn
        )
        for turn, outcome in EXAMPLE
    ]
    found = hand.credits(MultiTurn(all_turns=True, gamma=0.5, turn_weight=2.0), *episodes)
    # z of the turns .866 and of the outcome 1.5: 2 * .866 + .5 * 1.5, and 2 * .866 + .5 of that
    assert found[0] == pytest.approx([2.973, 2.482, 1.5], abs=2e-3)


def test_a_reward_counts_once_in_the_turn_and_not_again_in_the_outcome(hand):
    first, second = (
        hand.episode(*(hand.decision(reward=one) for one in own), outcome=1.0) for own in ([1.0, 0.0], [0.0, 1.0])
    )
    # What follows the first turn is worth 0 and 1, so that both have the same from there on: z is -+.7071.
    assert hand.credits(MultiTurn(), first, second) == [[0, -0.707], [0, 0.707]]


@pytest.mark.parametrize("all_turns", [False, True])
def test_the_first_score_is_compared_in_its_group(hand, all_turns):
    episodes = [hand.episode(hand.decision(reward=one), hand.decision(), outcome=1.0) for one in (0.9, 0.1)]
    found = hand.credits(MultiTurn(turn_scores="score", all_turns=all_turns, turn_weight=2.0), *episodes)
    assert [own[0] for own in found] == pytest.approx([1.414, -1.414], abs=1e-2)


def test_without_discounted_returns_an_unknown_verdict_concerns_its_turn_alone(hand):
    verdicts = [(1.0, float("nan"), 0.0), (0.0, 1.0, 0.0)]
    episodes = [hand.episode(*(hand.decision(verdict=one) for one in own), outcome=0.0) for own in verdicts]
    (first, second, _), _ = hand.credits(MultiTurn(turn_scores="verdict", all_turns=True, gamma=0.0), *episodes)
    assert first == pytest.approx(0.707, abs=1e-3)
    assert second is None


def test_verdicts_are_collected_only_if_they_are_the_turn_scores():
    assert methods.make("mt_grpo", group_size=4).collector == Group(size=4)
    assert methods.make("mt_grpo", group_size=4, turn_scores="verdict").collector == Verified(inner=Group(size=4))
