"""What `free_rider_index.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence


def free_rider_index(credits: Sequence[float], contributions: Sequence[float]) -> float:
    """The share of all positive credit that went to decisions by which the team gained nothing.

        sum max(A, 0) [c <= 0] / sum max(A, 0)

    Args:
        credits: A of each decision, in any unit.
        contributions: c of each decision, in the unit of the outcome: exact
            (`hf_credit.collaborations.exact_coalitions`) or from replays that were held out. The difference that the
            credit itself was made of will not do: it would judge itself.

    Returns:
        In [0, 1]; NaN where no credit is positive.

    Raises:
        ValueError: there are not as many of both, or a number is not finite.
    """
    if len(credits) != len(contributions):
        raise ValueError(
            f"every credit must have a contribution, got {len(credits)} and {len(contributions)}; drop the others."
        )
    for value in (*credits, *contributions):
        if not math.isfinite(value):
            raise ValueError(f"credits and contributions must be finite, got {value}; drop its decision.")
    pairs = [(max(credit, 0.0), gain) for credit, gain in zip(credits, contributions, strict=True)]
    positive = sum(credit for credit, _ in pairs)
    return sum(credit for credit, gain in pairs if gain <= 0) / positive if positive else math.nan
