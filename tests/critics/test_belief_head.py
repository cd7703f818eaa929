"""The belief head learns from the policy's hidden states and does not change the policy."""

from __future__ import annotations

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from hf_credit import make
from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import CriticConfig
from hf_credit.critics.inputs import CriticSpec
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts.method_context import CriticInput

INPUTS = [CriticInput(ids=ids, at=(len(ids),)) for ids in ((5, 6, 7), (8,), (9, 10))]
TARGETS = [(1.0, 0.0, 0.2, 0.3, 0.5), (0.0, 1.0, 1.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 1.0)]


@pytest.fixture
def head():
    AcceleratorState._reset_state(True)
    policy = build_model(build_tokenizer(make("tic_tac_toe"), episodes=1), MicroConfig(hidden_size=16, heads=2))
    config = CriticConfig(learning_rate=0.1, micro_batch_rows=2)
    yield BeliefHead(policy, 0, Accelerator(cpu=True), config, (2, 3))
    AcceleratorState._reset_state(True)


def test_a_new_head_predicts_uniform_distributions(head):
    assert head([]) == []
    assert head(INPUTS[:1]) == [pytest.approx((0.5, 0.5, 1 / 3, 1 / 3, 1 / 3))]


def test_it_learns_the_distributions_of_each_slot_and_does_not_train_the_policy(head):
    policy = {name: weight.clone() for name, weight in head.backbone.model.named_parameters()}
    for _ in range(80):
        metrics = head.learn(INPUTS, TARGETS, head(INPUTS))
    for said, wanted in zip(head(INPUTS), TARGETS, strict=True):
        assert said == pytest.approx(wanted, abs=0.1)
    assert metrics["accuracy"] == 1.0
    for name, weight in head.backbone.model.named_parameters():
        assert torch.equal(weight, policy[name])
        assert weight.grad is None
        assert weight.requires_grad


def test_a_slot_without_a_target_is_in_no_gradient_and_no_mean(head):
    nan = float("nan")
    metrics = head.learn(INPUTS[:1], [(0.0, 1.0, nan, nan, nan)], head(INPUTS[:1]))
    assert metrics["loss"] == pytest.approx(math.log(2))
    assert metrics["accuracy"] == 0.0
    assert head(INPUTS[:1])[0][2:] == pytest.approx((1 / 3,) * 3)
    before = head(INPUTS)
    assert head.learn(INPUTS[:1], [(nan,) * 5], head(INPUTS[:1]))["loss"] == 0.0
    assert head(INPUTS) == before


def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(head):
    head.learn(INPUTS, TARGETS, head(INPUTS))
    alone = [own for reading in INPUTS for own in head([reading])]
    assert alone == [pytest.approx(own, abs=1e-6) for own in head(INPUTS)]


def test_texts_that_grow_are_read_once(head):
    grown = [CriticInput(ids=tuple(range(5, 5 + size)), at=(size,)) for size in (2, 3, 6)]
    head.learn(INPUTS, TARGETS, head(INPUTS))
    alone, read = [own for text in grown for own in head([text])], []
    head.backbone.model.register_forward_pre_hook(
        lambda model, args, named: read.append(int(named["attention_mask"].sum())), with_kwargs=True
    )
    assert head([*INPUTS, *grown])[3:] == [pytest.approx(own, abs=1e-6) for own in alone]
    assert sum(read) == sum(len(text.ids) for text in INPUTS) + 6


def test_without_targets_the_head_does_not_change(head, tmp_path):
    before = head(INPUTS)
    assert head.learn([], [], [])["loss"] == 0.0
    assert head(INPUTS) == before
    head.learn(INPUTS, TARGETS, before)
    head.save(tmp_path, "belief")
    saved = head(INPUTS)
    head.learn(INPUTS, TARGETS, saved)
    head.load(tmp_path, "belief")
    assert head(INPUTS) == saved


def test_only_beliefs_have_slots():
    for wrong in ({"output": "beliefs"}, {"slots": (2,)}, {"output": "beliefs", "slots": (1,)}):
        with pytest.raises(
            ValueError, match="slots must be numbers of at least 2 with output='beliefs' and empty otherwise"
        ):
            CriticSpec(**wrong)
    with pytest.raises(ValueError, match="output of a critic must be one of value"):
        CriticSpec(output="truth")
