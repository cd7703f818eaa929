"""Numbers and texts for a person, and values as plain JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def counted(number: int, noun: str, plural: str = "") -> str:
    """Writes a number of things: `1 update`, `1,024 updates`.

    Args:
        number: how many.
        noun: in the singular.
        plural: by default the singular with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration(seconds: float) -> str:
    """Writes a duration in seconds, minutes or hours."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def cut(text: str, most: int) -> str:
    """Cuts out the middle of a text with more than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"


def plain(value: Any, digits: int = 17) -> Any:
    """Converts a value to strict JSON: dataclasses become mappings, and numbers that are not finite `None`."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one, digits) for key, one in value.items()}
    return [plain(one, digits) for one in value] if isinstance(value, list | tuple) else value
