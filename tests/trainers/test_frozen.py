"""Frozen copies of a policy's weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from hf_credit.methods import make
from hf_credit.trainers.frozen import FrozenPolicy


def policy(dtype: torch.dtype = torch.float32) -> nn.Linear:
    """One weight of 1 that learns, and a bias of 0 that does not."""
    model = nn.Linear(1, 1, dtype=dtype)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias).requires_grad_(False)
    return model


def copied(model: nn.Module, every: int | None = 1, decay: float | None = None) -> FrozenPolicy:
    trainer: Any = SimpleNamespace(accelerator=Accelerator(cpu=True), model=model)
    return FrozenPolicy(trainer, replace(make("grpo"), refresh_frozen_every=every, frozen_decay=decay))


def learn(model: nn.Linear, weight: float) -> None:
    nn.init.constant_(model.weight, weight)


def test_the_policy_has_the_copys_weights_within_and_its_own_afterwards() -> None:
    model = policy()
    copy = copied(model)
    learn(model, 2.0)
    own = model.weight.data_ptr()
    with copy.in_use():
        assert model.weight.item() == 1.0
    assert (model.weight.item(), model.weight.data_ptr()) == (2.0, own)
    with pytest.raises(RuntimeError, match="broke"), copy.in_use():
        raise RuntimeError("it broke")
    assert (model.weight.item(), model.weight.data_ptr()) == (2.0, own)


def test_frozen_weights_are_not_copied() -> None:
    assert copied(policy()).weights.keys() == {"weight"}


def test_refreshing_copies_the_current_weights() -> None:
    model = policy()
    copy = copied(model, every=2)
    learn(model, 2.0)
    copy.before_update(1)
    assert copy.weights["weight"].item() == 1.0
    copy.before_update(2)
    learn(model, 3.0)
    assert copy.weights["weight"].item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_follows_in_steps_too_small_for_the_policys_dtype(dtype: torch.dtype) -> None:
    model = policy(dtype)
    copy = copied(model, decay=0.995)
    learn(model, 1.5)
    for update in range(100):
        copy.before_update(update)
    assert copy.weights["weight"].item() == pytest.approx(1.5 - 0.5 * 0.995**100, abs=1e-5)
    with copy.in_use():
        assert model.weight.dtype == dtype
        assert model.weight.item() == pytest.approx(1.5 - 0.5 * 0.995**100, rel=2**-8)


def test_the_state_is_restored_and_that_of_another_policy_is_refused(tmp_path: Path) -> None:
    model = policy()
    copy = copied(model, decay=0.5)
    learn(model, 2.0)
    copy.before_update(1)
    copy.on_checkpoint(tmp_path)
    other = copied(policy(), decay=0.5)
    other.load(tmp_path, {}, same=True)
    assert other.weights["weight"].item() == 1.5
    with pytest.raises(ValueError, match="of the policy's trained weights, got others; resume with the same model"):
        copied(nn.Sequential(policy()), decay=0.5).load(tmp_path, {}, same=True)
