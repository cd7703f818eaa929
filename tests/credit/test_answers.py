"""Credit from the probability of the right answer, against numbers worked out by hand and of the papers."""

from __future__ import annotations

import math

import pytest
import torch

from hf_credit.credit import information_gain_advantages, log_ratio_advantages

GROUP = torch.zeros(2, dtype=torch.long)
# Before its turns the first rollout gives the right answer .25 and .5; the second, of one turn, .25.
LOGPROBS = torch.tensor([[0.25, 0.5], [0.25, 1.0]], dtype=torch.float64).log()
ACTIVE = torch.tensor([[1, 1], [1, 0]])
OUTCOMES = torch.tensor([1.0, 0.25], dtype=torch.float64)


def close(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), rtol=1e-3, atol=1e-3)


def test_gains_and_outcomes_are_normalised_together_and_summed():
    # Rewards .25, 1 and .25: mean .5, sample deviation .433, so -.577, 1.155 and -.577.
    close(information_gain_advantages(LOGPROBS, OUTCOMES, ACTIVE, GROUP), [[0.577, 1.155], [-0.577, 0.0]])
    close(information_gain_advantages(LOGPROBS, OUTCOMES, ACTIVE, GROUP, gamma=0.5), [[0.0, 1.155], [-0.577, 0.0]])


def test_gains_apart_from_outcomes():
    # One gain has nothing to be compared with; outcomes 1 and .25 are +- .707.
    found = information_gain_advantages(LOGPROBS, OUTCOMES, ACTIVE, GROUP, joint=False)
    close(found, [[0.707, 0.707], [-0.707, 0.0]])


def test_the_papers_transitions():
    # TRACE tells its log-ratio from the raw gain by two that gain 3.55 nats: 1.1806 and .4052, with a gap of .001.
    logprobs = torch.tensor([[-5.1187, -1.5712], [-10.6570, -7.1061]], dtype=torch.float64)
    settings = {"turn_weight": 1.0, "horizon": 1, "terminal": 0.0, "gap": 0.001}
    found = log_ratio_advantages(logprobs, torch.zeros(2), torch.ones(2, 2), GROUP, **settings)
    torch.testing.assert_close(found[:, 0], torch.tensor([1.1806, 0.4052], dtype=torch.float64), rtol=0, atol=5e-5)
    assert found[:, 1].tolist() == [0.0, 0.0]


def test_credit_of_later_turns_and_the_outcome_at_the_end():
    # Distances 8, 4, 2, 2 and 1 halve by log 2 = .693: deltas 1, 1, 0, 1 of it. With K = 2 and gamma .5 the credit is
    # (1 + .5) / 1.5, 1 / 1.5, .5 / 1.5 and 1 of it: .693, .462, .231, .693. Outcomes +-1; the last two windows reach
    # the end, with 2 x .25 and 2 x .5.
    logprobs = -torch.tensor([[8.0, 4.0, 2.0, 2.0, 1.0], [8.0] * 5], dtype=torch.float64) + 0.5
    settings = {"turn_weight": 1.0, "horizon": 2, "gamma": 0.5, "terminal": 2.0, "gap": 0.5}
    outcomes = torch.tensor([1.0, 0.0], dtype=torch.float64)
    found = log_ratio_advantages(logprobs, outcomes, torch.ones(2, 5), GROUP, **settings)
    close(found, [[1.693, 1.462, 1.731, 2.693, 1.0], [-1.0, -1.0, -1.5, -2.0, -1.0]])


def test_one_step_credit_telescopes():
    logprobs = torch.tensor([[-3.0, -1.0, -2.0, -0.5]], dtype=torch.float64)
    settings = {"turn_weight": 1.0, "horizon": 1, "gamma": 1.0, "gap": 0.1}
    found = log_ratio_advantages(logprobs, torch.ones(1), torch.ones(1, 4), GROUP[:1], **settings)
    assert found.sum().item() == pytest.approx(math.log(3.1 / 0.6))


def test_a_rollout_of_one_turn_has_its_outcome_alone():
    found = log_ratio_advantages(LOGPROBS[:, :1], OUTCOMES, ACTIVE[:, :1], GROUP)
    close(found, [[1.0], [-1.0]])


@pytest.mark.parametrize("argument", [{"horizon": 0}, {"gap": 0.0}, {"gamma": 2.0}, {"terminal": -1.0}])
def test_arguments_out_of_range_are_refused(argument):
    with pytest.raises(ValueError, match="must be"):
        log_ratio_advantages(LOGPROBS, OUTCOMES, ACTIVE, GROUP, **argument)
