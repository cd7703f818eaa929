"""AREW on episodes written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hf_credit.methods.arew import Critiqued, critique_shifts
from hf_credit.rollouts import Ending


def test_shifts_have_the_sign_of_critiques_and_the_sum_0():
    critiques = torch.tensor([[1.0, -2.0, 0.0, 3.0], [1.0, 1.0, 0.0, 0.0], [-1.0, -1.0, -1.0, 1.0], [0.0] * 4])
    third = 1 / 3
    expected = [[0.5, -1, 0, 0.5], [0.0] * 4, [-third, -third, -third, 1.0], [0.0] * 4]
    torch.testing.assert_close(critique_shifts(critiques), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(critique_shifts(critiques, minority=True), torch.tensor(expected, dtype=torch.float64))


def test_the_rarer_sign_has_the_whole_strength():
    critiques = torch.tensor([[1.0, 1.0, -1.0, -1.0, -1.0]])
    assert critique_shifts(critiques, minority=True)[0].tolist() == pytest.approx([1, 1, *[-2 / 3] * 3])
    assert critique_shifts(critiques)[0].tolist() == pytest.approx([0.5, 0.5, *[-1 / 3] * 3])


def episode(hand, *verdicts, outcome, **values):
    return hand.episode(*(hand.decision(verdict=one) for one in verdicts), outcome=outcome, **values)


def test_credit_moves_to_the_turns_that_an_oracle_accepts(hand):
    # Outcomes 1 and 0 are +-.707; .2 goes from the rejected turns to the accepted ones, none without both.
    first, second = episode(hand, 1.0, None, 0.5, 0.0, outcome=1.0), episode(hand, 0.0, outcome=0.0)
    failed = episode(hand, 1.0, 0.0, outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(Critiqued(strength=0.2, eps=1e-9), first, failed, second)
    assert found == [[0.907, 0.707, 0.607, 0.607], [None, None], [-0.707]]


def test_the_sign_of_a_reward_is_a_critique_too(hand):
    rewarded = hand.episode(*(hand.decision(reward=one) for one in (0.5, 0.0, -3.0)), outcome=1.0)
    other = replace(hand.episode(hand.decision(), outcome=0.0))
    found = hand.credits(Critiqued(turn_scores="reward", strength=0.1, eps=1e-9), rewarded, other)
    assert found == [[0.807, 0.707, 0.607], [-0.707]]
