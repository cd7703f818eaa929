"""Replicated weights on one process; for several see test_critic.py."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors import safe_open

from hf_credit.critics.weights import ReplicatedWeights


@pytest.fixture
def build(accelerator):
    """`build(shape)`: one matrix of ones and a bias."""

    def build(shape=(2, 3), **changed):
        parameters = {"matrix": torch.nn.Parameter(torch.ones(shape)), "bias": torch.nn.Parameter(torch.zeros(()))}
        settings = {"learning_rate": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.0, **changed}
        return ReplicatedWeights(parameters, accelerator, **settings)

    return build


def stepped(weights, scale=1.0, max_grad_norm=None):
    (scale * (weights.parameters["matrix"].sum() + weights.parameters["bias"])).backward()
    return weights.step(max_grad_norm)


def values_of(weights):
    return {name: parameter.detach().clone() for name, parameter in weights.parameters.items()}


def same(first, second):
    return all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_step_returns_the_norm_before_clipping(build):
    weights = build()
    assert stepped(weights) == pytest.approx(math.sqrt(7))
    assert stepped(weights, max_grad_norm=0.5) == pytest.approx(math.sqrt(7))
    # The first moment of AdamW: 0.9 of the first gradient's tenth, and a tenth of the clipped one.
    moment = weights.optimizer.state[weights.parameters["bias"]]["exp_avg"].item()
    assert moment == pytest.approx(0.9 * 0.1 + 0.1 * 0.5 / math.sqrt(7))
    assert weights.steps == 2
    assert weights.parameters["bias"].grad is None


def test_the_warm_up_is_linear_from_0(build):
    # Gradients that are all alike move a weight by the learning rate a step, which is 0, 1/4, 2/4, 3/4, 1, 1 of 0.1.
    weights, bias = build(warmup_steps=4), []
    for _ in range(6):
        stepped(weights)
        bias.append(-weights.parameters["bias"].item())
    assert bias == pytest.approx([0, 0.025, 0.075, 0.15, 0.25, 0.35], abs=1e-6)


def test_a_skipped_step_does_not_count_in_the_warm_up(build):
    weights = build(warmup_steps=1)
    for scale in (1.0, math.nan):
        stepped(weights, scale=scale)
    assert weights.parameters["bias"].item() == 0
    stepped(weights)
    assert weights.parameters["bias"].item() == pytest.approx(-0.1)


def test_parameters_without_gradient_do_not_change(build):
    weights = build()
    weights.parameters["bias"].sum().backward()
    weights.step(None)
    assert torch.equal(weights.parameters["matrix"], torch.ones(2, 3))
    assert weights.parameters["bias"].item() == pytest.approx(-0.1)


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_a_step_with_a_gradient_that_is_not_finite_is_skipped(build, scale):
    weights = build()
    before = values_of(weights)
    assert not math.isfinite(stepped(weights, scale=scale, max_grad_norm=1.0))
    assert same(before, values_of(weights))
    assert weights.steps == 0
    stepped(weights)
    assert all(value.isfinite().all() for value in values_of(weights).values())


def test_a_state_is_a_copy_and_resumes_exactly(build, tmp_path):
    first = build()
    stepped(first)
    state = first.state()
    torch.save(state, tmp_path / "state.pt")
    stepped(first, scale=-3.0)
    second = build()
    second.load_state(torch.load(tmp_path / "state.pt", weights_only=True))
    stepped(second, scale=-3.0)
    assert same(values_of(first), values_of(second))
    third = build()
    third.load_state(state)
    stepped(third, scale=5.0)  # must not reach into the state
    fourth = build()
    fourth.load_state(state)
    stepped(fourth, scale=-3.0)
    assert same(values_of(first), values_of(fourth))
    assert fourth.steps == 2


def test_a_file_has_the_weights_and_loading_it_resets_the_optimizer(build, tmp_path):
    path = tmp_path / "critic" / "critic.safetensors"
    first = build()
    stepped(first)
    first.save(path)
    with safe_open(path, "pt") as file:
        assert set(file.keys()) == {"matrix", "bias"}
        assert file.metadata() == {"format": "pt", "steps": "1"}
    second = build()
    stepped(second, scale=-7.0)
    second.load(path)
    assert same(values_of(first), values_of(second))
    assert second.steps == 0
    assert not second.optimizer.state


def test_weights_of_another_backbone_are_refused(build, tmp_path):
    path = tmp_path / "critic" / "critic.safetensors"
    build((2, 4)).save(path)
    with pytest.raises(
        ValueError, match=r"must have the same backbone, got .*safetensors, which differs in matrix; use"
    ):
        build().load(path)
    state = build().state()
    state["weights"] = {"head": torch.zeros(1)}
    with pytest.raises(ValueError, match="got a checkpoint, which differs in bias and 2 more; use"):
        build().load_state(state)


def test_a_folder_without_a_critic_is_refused(build, tmp_path):
    with pytest.raises(ValueError, match=r"without critic/critic\.safetensors; save one there first"):
        build().load(tmp_path / "critic" / "critic.safetensors")
