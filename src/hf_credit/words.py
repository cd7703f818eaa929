"""Numbers in words, for lines that a person reads."""

from __future__ import annotations


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
