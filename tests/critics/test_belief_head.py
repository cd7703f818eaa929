"""A belief head reads what is in the policy's hidden states, and leaves the policy as it is."""

from __future__ import annotations

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from hf_credit import make
from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import CriticConfig
from hf_credit.critics.specs import CriticSpec
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts.method_context import CriticInput

READINGS = [CriticInput(ids=ids, at=(len(ids),)) for ids in ((5, 6, 7), (8,), (9, 10))]
TARGETS = [(1.0, 0.0, 0.2, 0.3, 0.5), (0.0, 1.0, 1.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 1.0)]


@pytest.fixture
def head():
    AcceleratorState._reset_state(True)
    policy = build_model(build_tokenizer(make("tic_tac_toe"), episodes=1), MicroConfig(hidden_size=16, heads=2))
    config = CriticConfig(learning_rate=0.1, micro_batch_rows=2)
    yield BeliefHead(policy, 0, Accelerator(cpu=True), config, (2, 3))
    AcceleratorState._reset_state(True)


def test_a_new_head_believes_all_values_alike(head):
    assert head([]) == []
    assert head(READINGS[:1]) == [pytest.approx((0.5, 0.5, 1 / 3, 1 / 3, 1 / 3))]


def test_it_learns_the_distributions_of_each_slot_and_not_the_policy(head):
    policy = {name: weight.clone() for name, weight in head.backbone.model.named_parameters()}
    for _ in range(80):
        told = head.learn(READINGS, TARGETS, head(READINGS))
    for said, wanted in zip(head(READINGS), TARGETS, strict=True):
        assert said == pytest.approx(wanted, abs=0.1)
    assert told["accuracy"] == 1.0
    for name, weight in head.backbone.model.named_parameters():
        assert torch.equal(weight, policy[name])
        assert weight.grad is None
        assert weight.requires_grad


def test_a_slot_without_a_distribution_teaches_nothing_and_counts_in_nothing(head):
    nan = float("nan")
    told = head.learn(READINGS[:1], [(0.0, 1.0, nan, nan, nan)], head(READINGS[:1]))
    assert told["loss"] == pytest.approx(math.log(2))
    assert told["accuracy"] == 0.0
    assert head(READINGS[:1])[0][2:] == pytest.approx((1 / 3,) * 3)
    before = head(READINGS)
    assert head.learn(READINGS[:1], [(nan,) * 5], head(READINGS[:1]))["loss"] == 0.0
    assert head(READINGS) == before


def test_what_it_says_does_not_depend_on_what_is_read_beside_it(head):
    head.learn(READINGS, TARGETS, head(READINGS))
    alone = [own for reading in READINGS for own in head([reading])]
    assert alone == [pytest.approx(own, abs=1e-6) for own in head(READINGS)]


def test_nothing_to_learn_leaves_it_as_it_was(head, tmp_path):
    before = head(READINGS)
    assert head.learn([], [], [])["loss"] == 0.0
    assert head(READINGS) == before
    head.learn(READINGS, TARGETS, before)
    head.save(tmp_path, "belief")
    saved = head(READINGS)
    head.learn(READINGS, TARGETS, saved)
    head.load(tmp_path, "belief")
    assert head(READINGS) == saved


def test_slots_go_with_beliefs_alone():
    for wrong in ({"output": "beliefs"}, {"slots": (2,)}, {"output": "beliefs", "slots": (1,)}):
        with pytest.raises(
            ValueError, match="slots must be numbers of at least 2 with output='beliefs' and empty otherwise"
        ):
            CriticSpec(**wrong)
    with pytest.raises(ValueError, match="output of a critic must be one of value"):
        CriticSpec(output="truth")
