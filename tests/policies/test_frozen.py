"""Frozen copies of a policy's weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hf_credit.policies.frozen import FrozenCopy


def policy(dtype: torch.dtype = torch.float32) -> nn.Linear:
    """One weight of 1 that learns, and a bias of 0 that does not."""
    model = nn.Linear(1, 1, dtype=dtype)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias).requires_grad_(False)
    return model


def learn(model: nn.Linear, weight: float) -> None:
    nn.init.constant_(model.weight, weight)


def test_the_policy_has_the_copys_weights_within_and_its_own_afterwards() -> None:
    model = policy()
    copy = FrozenCopy(model)
    learn(model, 2.0)
    own = model.weight.data_ptr()
    with copy.in_use():
        assert model.weight.item() == 1.0
    assert (model.weight.item(), model.weight.data_ptr()) == (2.0, own)
    with pytest.raises(RuntimeError, match="broke"), copy.in_use():
        raise RuntimeError("it broke")
    assert (model.weight.item(), model.weight.data_ptr()) == (2.0, own)


def test_frozen_weights_are_not_copied() -> None:
    assert FrozenCopy(policy()).state().keys() == {"weight"}


def test_refreshing_copies_the_current_weights() -> None:
    model = policy()
    copy = FrozenCopy(model)
    learn(model, 2.0)
    assert copy.weights["weight"].item() == 1.0
    copy.refresh()
    learn(model, 3.0)
    assert copy.weights["weight"].item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_follows_in_steps_too_small_for_the_policys_dtype(dtype: torch.dtype) -> None:
    model = policy(dtype)
    copy = FrozenCopy(model, torch.float32)
    learn(model, 1.5)
    for _ in range(100):
        copy.follow(0.995)
    assert copy.weights["weight"].item() == pytest.approx(1.5 - 0.5 * 0.995**100, abs=1e-5)
    with copy.in_use():
        assert model.weight.dtype == dtype
        assert model.weight.item() == pytest.approx(1.5 - 0.5 * 0.995**100, rel=2**-8)


def test_the_state_is_restored_and_that_of_another_policy_is_refused() -> None:
    model = policy()
    copy = FrozenCopy(model, torch.float32)
    learn(model, 2.0)
    copy.follow(0.5)
    other = FrozenCopy(policy(), torch.float32)
    other.load_state(copy.state())
    assert other.weights["weight"].item() == 1.5
    with pytest.raises(ValueError, match="of the policy's trained weights, got others; resume with the same model"):
        other.load_state({"another": torch.ones(1)})
