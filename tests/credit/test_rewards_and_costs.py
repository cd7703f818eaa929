"""Shaped rewards, multipliers and advantages of costs against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from hf_credit.credit import Multipliers, RewardWeights, belief_reward, cost_advantages, harmonic_mean


def test_each_term_has_its_weight_and_hacks_are_taken_off() -> None:
    weights = RewardWeights()
    terms = {"answer": 1.0, "evidence": 0.45, "meta": 0.18, "belief": 0.25, "contribution": 0.6, "hack": -0.8}
    for name, expected in terms.items():
        assert weights.reward(**{name: 1.0}) == pytest.approx(expected)
    assert weights.reward(1.0, 1.0, 1.0, -2.0, 0.5, 1.0) == pytest.approx(1 + 0.45 + 0.18 - 0.5 + 0.3 - 0.8)


def test_evidence_counts_nothing_where_either_part_is_nothing() -> None:
    assert harmonic_mean(0.5, 1.0) == pytest.approx(2 / 3)
    assert harmonic_mean(0.0, 1.0) == harmonic_mean(1.0, 0.0) == harmonic_mean(0.0, 0.0) == 0.0


def test_a_belief_is_measured_from_what_is_implied_to_what_is_held() -> None:
    implied, held = {"phase": (0.5, 0.5)}, {"phase": (0.9, 0.1)}
    assert belief_reward(implied, held) == pytest.approx(-(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)))
    assert belief_reward(held, implied) != pytest.approx(belief_reward(implied, held))


def test_slots_are_clipped_and_averaged_and_those_that_are_not_defined_do_not_count() -> None:
    held = {"a": (1.0, 0.0), "b": (0.5, 0.5), "c": (0.1, 0.9)}
    assert belief_reward({"a": (0.0, 1.0)}, held) == -2.0  # infinite, clipped
    assert belief_reward({"a": (0.0, 1.0), "b": (0.5, 0.5)}, held) == -1.0
    assert belief_reward({}, held) == 0.0


def test_weights_that_are_all_0_are_refused() -> None:
    with pytest.raises(ValueError, match="must not all be 0"):
        RewardWeights(**dict.fromkeys(RewardWeights.__dataclass_fields__, 0.0))


def test_beliefs_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="of as many values, got 3 for 2 of 'a'"):
        belief_reward({"a": (0.5, 0.5)}, {"a": (0.2, 0.3, 0.5)})
    with pytest.raises(ValueError, match=r"every implied slot must have a held belief"):
        belief_reward({"a": (0.5, 0.5)}, {})
    with pytest.raises(ValueError, match=r"an implied belief must be a distribution, got \[0.5, 0.6\] of 'a'"):
        belief_reward({"a": (0.5, 0.6)}, {"a": (0.5, 0.5)})


def test_weights_are_the_gradient_of_the_augmented_lagrangian():
    own = Multipliers(limits={"edits": 0.02, "calls": 0.06}, values={"edits": 0.5, "calls": 0.1})
    # 0.5 + 2 (0.12 - 0.02), and 0.1 where the limit is kept
    assert own.weights({"edits": 0.12, "calls": 0.01}) == pytest.approx({"edits": 0.7, "calls": 0.1})


def test_multipliers_step_towards_what_is_exceeded_and_never_below_zero():
    own = Multipliers(limits={"edits": 0.02, "calls": 0.06}, values={"edits": 0.5, "calls": 0.001})
    # 0.5 + 0.05 (0.12 - 0.02); 0.001 + 0.05 (0 - 0.06) < 0
    assert own.updated({"edits": 0.12, "calls": 0.0}).values == pytest.approx({"edits": 0.505, "calls": 0.0})
    textbook = Multipliers(limits={"edits": 0.02}, rule="textbook", penalty=3.0)
    assert textbook.updated({"edits": 0.12}).values == pytest.approx({"edits": 0.3})


def test_the_method_of_multipliers_finds_the_multiplier_of_a_problem_with_a_known_one():
    """Minimise (x - 3)^2 where x <= 1: the gradient 2 (1 - 3) + lambda = 0 gives lambda = 4."""
    own = Multipliers(limits={"x": 1.0}, rule="textbook", penalty=2.0)
    for _ in range(60):
        # The minimiser of (x - 3)^2 + rho/2 [x - 1 + lambda/rho]_+^2 in x.
        x = max(0.0, (6 + 2.0 * 1.0 - own.values["x"]) / (2 + 2.0))
        own = own.updated({"x": x})
    assert own.values["x"] == pytest.approx(4.0)
    assert x == pytest.approx(1.0)


def test_a_limit_that_is_never_reached_has_no_multiplier():
    own = Multipliers(limits={"x": 0.5}, values={"x": 0.2})
    for _ in range(100):
        own = own.updated({"x": 0.1})
    assert own.values == {"x": 0.0}
    assert own.weights({"x": 0.1}) == {"x": 0.0}


def test_costs_to_go_are_compared_with_those_of_others_at_the_same_turn():
    costs = torch.tensor([[1.0, 0.0, 2.0], [0.0, 4.0, math.nan]])
    active = torch.tensor([[1, 1, 1], [1, 1, 0]])
    # Costs to go with gamma 1/2: 1.5, 1, 2 and 2, 4.
    assert cost_advantages(costs, active, 0.5).tolist() == [[-0.5, -3.0, 2.0], [0.5, 3.0, 0.0]]


def test_only_episodes_of_one_group_are_compared():
    costs, active = torch.tensor([[1], [3], [5]]), torch.ones(3, 1)
    assert cost_advantages(costs, active, groups=torch.tensor([7, 7, 2])).tolist() == [[-2.0], [2.0], [5.0]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits": {"x": -0.1}}, "the limit of x must be at least 0, got -0.1"),
        ({"limits": {"x": math.nan}}, "the limit of x must be a finite number"),
        ({"limits": {"x": 0.1}, "values": {"y": 0.0}}, "a multiplier must be that of a cost with a limit"),
        ({"limits": {"x": 0.1}, "values": {"x": -1.0}}, "the multiplier of x must be"),
        ({"limits": {"x": 0.1}, "penalty": math.inf}, "penalty must be a finite number"),
        ({"limits": {"x": 0.1}, "rate": 0.0}, "rate must be above 0, got 0.0"),
        ({"limits": {"x": 0.1}, "rule": "other"}, "rule must be one of paper, textbook, got 'other'"),
    ],
)
def test_multipliers_that_are_not_possible_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Multipliers(**options)


def test_costs_that_were_not_measured_or_are_negative_are_refused():
    own = Multipliers(limits={"x": 0.1})
    with pytest.raises(ValueError, match="the mean cost x must be a finite number, got nan"):
        own.weights({"y": 1.0})
    with pytest.raises(ValueError, match=r"the mean cost x must be at least 0, got -1.0"):
        own.updated({"x": -1.0})
    with pytest.raises(ValueError, match=r"a cost must be at least 0, got -2.0"):
        cost_advantages(torch.tensor([[-2.0]]), torch.ones(1, 1))
