"""Cosine similarity in exact arithmetic (paper T3, Appendix C.1: PreferenceEstimation)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def cosine_exceeds(first: Sequence[int], second: Sequence[int], threshold: Fraction) -> bool:
    """Returns whether the cosine of two vectors is strictly greater than a threshold, without rounding.

    `<a, b> / (|a| |b|) > t` for t >= 0 is `<a, b> > 0` and `<a, b>^2 > t^2 |a|^2 |b|^2`. It is false for a zero
    vector.

    Args:
        first: whole numbers, of any scale.
        second: whole numbers, as many.
        threshold: at least 0.

    Raises:
        ValueError: the lengths differ, or the threshold is negative.
    """
    if len(first) != len(second):
        raise ValueError(f"two vectors must have the same length, got {len(first)} and {len(second)}; correct one.")
    if threshold < 0:
        raise ValueError(f"threshold must be at least 0, got {threshold}; raise it.")
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    norms = sum(a * a for a in first) * sum(b * b for b in second)
    return dot > 0 and Fraction(dot * dot) > threshold * threshold * norms
