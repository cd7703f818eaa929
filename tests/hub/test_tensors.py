"""Nested values with tensors in them come back bit by bit, and nothing of them is code."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_credit.hub.tensors import load_values, save_values


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (math.isnan(one) and math.isnan(other)))


def test_the_state_of_a_trainer_comes_back(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(3, 2))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    shared = torch.arange(6).reshape(2, 3)
    value = {
        "optimizer.pt": optimizer.state_dict(),
        "rng_state.pth": {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "cpu": torch.random.get_rng_state(),
        },
        "rollouts": [{"ids": shared, "again": shared.T, "empty": torch.zeros(0, 4)}, None, True],
        "moments": (math.nan, math.inf, -0.0, 0.1, 2**70),
        7: "text \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    }
    save_values(value, tmp_path / "state")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "state.safetensors"]
    assert same(load_values(tmp_path / "state"), value)


@pytest.mark.parametrize("value", [object(), {1.5: 1}, np.array(["a"]), {"x": {1, 2}}, torch.nn.Linear(1, 1)])
def test_what_is_no_plain_value_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be tensors and plain values to be published, got a"):
        save_values(value, tmp_path / "state")


@pytest.mark.parametrize(
    "skeleton", [{"tensor": "9"}, {"call": "os.system"}, {"tuple": 3}, {"map": [1]}, {"a": 1, "b": 2}]
)
def test_a_skeleton_that_was_not_saved_is_refused(skeleton: Any, tmp_path: Path) -> None:
    save_values({"a": torch.zeros(1)}, tmp_path / "state")
    (tmp_path / "state.json").write_text(json.dumps(skeleton))
    with pytest.raises(ValueError, match="must be what was saved"):
        load_values(tmp_path / "state")
