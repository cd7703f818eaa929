"""MaxRL on episodes written by hand, and its expected gradient."""

from __future__ import annotations

import itertools

import pytest
import torch

from hf_credit.methods.maxrl import MeanScaled, maxrl, mean_scaled
from hf_credit.methods.rloo import OthersMean
from hf_credit.rollouts import Ending
from hf_credit_bench import make_problem


def of(*outcomes):
    return mean_scaled(torch.tensor(outcomes, dtype=torch.float64), torch.zeros(len(outcomes), dtype=torch.long))


def test_a_rare_success_has_more_credit_than_a_common_one(hand):
    outcomes, instances = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0), (0, 0, 0, 0, 1, 1, 1, 1)
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in outcomes]
    failed = hand.episode(hand.decision(), outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(MeanScaled(), *episodes, failed, instances=(*instances, 0))
    assert found == [[3.0], [-1.0], [-1.0], [-1.0], [0.333], [0.333], [-1.0], [0.333], [None]]


@pytest.mark.parametrize("outcomes", [(0.0, 0.0), (0.1, 0.1, 0.1), (7.0,)])
def test_without_a_difference_or_a_success_credit_is_0(outcomes):
    assert of(*outcomes).tolist() == [0.0] * len(outcomes)


def test_the_unit_of_the_reward_does_not_matter():
    assert of(2.0, 4.0, 12.0).tolist() == pytest.approx(of(0.1, 0.2, 0.6).tolist())
    assert of(2.0, 4.0, 12.0).tolist() == pytest.approx([-2 / 3, -1 / 3, 1.0])


def test_two_episodes_that_succeed_or_not_are_credited_as_by_rloo(hand):
    for outcomes in itertools.product((0.0, 1.0), repeat=2):
        episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in outcomes]
        assert hand.credits(MeanScaled(), *episodes) == hand.credits(OthersMean(), *episodes)


@pytest.mark.parametrize("size", [2, 4])
def test_the_expected_gradient_is_that_of_log_p_but_for_its_late_terms(size):
    # log p = -sum over k of (1 - p)^k / k, whose gradient by p is the sum of (1 - p)^(k - 1).
    p, expected = 0.3, 0.0
    for outcomes in itertools.product((0.0, 1.0), repeat=size):
        successes = int(sum(outcomes))
        score = torch.tensor([1 / p if outcome else -1 / (1 - p) for outcome in outcomes], dtype=torch.float64)
        expected += p**successes * (1 - p) ** (size - successes) * (of(*outcomes) * score).mean().item()
    assert expected == pytest.approx(sum((1 - p) ** (k - 1) for k in range(1, size)))


def test_a_negative_outcome_is_refused():
    with pytest.raises(ValueError, match=r"at least 0 for MaxRL, got -1\.0; "):
        of(1.0, -1.0)


def test_a_task_with_negative_outcomes_is_refused_by_bind() -> None:
    with pytest.raises(ValueError, match=r"at least 0 for MaxRL, got -0\.2"):
        maxrl().bind(make_problem("stop", price=0.1, horizon=2))
    assert maxrl().bind(make_problem("chain")).name == "maxrl"
