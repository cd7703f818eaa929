"""Conversion of a method's memory for checkpoints."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch


def to_plain(memory: Any) -> Any:
    """Returns a method's memory for a checkpoint: dataclasses as mappings, copies of tensors, numbers as Python's.

    Raises:
        TypeError: a value is none that a checkpoint gives back.
    """
    if dataclasses.is_dataclass(memory) and not isinstance(memory, type):
        return {field.name: to_plain(getattr(memory, field.name)) for field in dataclasses.fields(memory)}
    if isinstance(memory, dict):
        return {name: to_plain(value) for name, value in memory.items()}
    if type(memory) in (tuple, list, set):
        return type(memory)(to_plain(value) for value in memory)
    if isinstance(memory, torch.Tensor):
        return memory.clone()
    memory = memory.item() if isinstance(memory, np.generic) else memory
    if memory is None or isinstance(memory, bool | int | float | str | bytes):
        return memory
    raise TypeError(f"a method's memory must be plain values and tensors, got a {type(memory).__name__}; convert it.")


def from_plain(values: Any, like: Any) -> Any:
    """Returns the memory from which `to_plain` made `values`.

    Args:
        values: a result of `to_plain`.
        like: the method's memory before the first update, which defines the dataclasses.
    """
    if dataclasses.is_dataclass(like) and not isinstance(like, type) and isinstance(values, dict):
        return dataclasses.replace(
            like, **{name: from_plain(value, getattr(like, name)) for name, value in values.items()}
        )
    if isinstance(values, dict) and isinstance(like, dict):
        return {name: from_plain(value, like.get(name)) for name, value in values.items()}
    return values
