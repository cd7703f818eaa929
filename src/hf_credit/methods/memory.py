"""The memory of a method, as checkpoints hold it."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


def to_plain(memory: Any) -> Any:
    """A method's memory as values for a checkpoint: dataclasses as mappings, everything else unchanged."""
    if dataclasses.is_dataclass(memory) and not isinstance(memory, type):
        return {one.name: to_plain(getattr(memory, one.name)) for one in dataclasses.fields(memory)}
    if isinstance(memory, dict):
        return {name: to_plain(value) for name, value in memory.items()}
    if isinstance(memory, tuple | list):
        return type(memory)(to_plain(value) for value in memory)
    return memory.clone() if isinstance(memory, torch.Tensor) else memory


def from_plain(values: Any, like: Any) -> Any:
    """The inverse of `to_plain`.

    Args:
        values: its result.
        like: the method's memory before the first update, whose dataclasses are made again.
    """
    if dataclasses.is_dataclass(like) and not isinstance(like, type) and isinstance(values, dict):
        return dataclasses.replace(
            like, **{name: from_plain(value, getattr(like, name)) for name, value in values.items()}
        )
    if isinstance(values, dict) and isinstance(like, dict):
        return {name: from_plain(value, like.get(name)) for name, value in values.items()}
    return values
