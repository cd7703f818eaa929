"""Conversion of a method's memory for checkpoints."""

from __future__ import annotations

import dataclasses
from typing import Any


def to_plain(memory: Any) -> Any:
    """Returns a method's memory for a checkpoint: dataclasses as mappings, copies of tensors, the rest unchanged."""
    return None if memory is None else dataclasses.asdict(memory)


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
