"""What `cut_quality.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CutQuality:
    """Whether stalls are what they stand for, and what cuts cost.

    Attributes:
        precision: of the steps that stalled, the share that made no progress; NaN without a stall.
        recall: of the steps that made no progress, the share that stalled; NaN where all did.
        lost: of the episodes that were cut, the share that succeeds when played on; NaN where none was.
        steps, cuts: how many of both there were.
    """

    precision: float
    recall: float
    lost: float
    steps: int
    cuts: int


def cut_quality(
    stalled: Sequence[Sequence[bool]], falls: Sequence[Sequence[float]], played_on: Sequence[float] = ()
) -> CutQuality:
    """How well the stalls of a rule tell steps without progress, and how many cuts were wrong.

    A step makes progress where the potential of the belief falls (paper T3, Def. 5: P > 0).

    Args:
        stalled: of each episode, whether each step stalled by the rule.
        falls: of each episode, by how much each step lowered the potential, in nats; finite.
        played_on: of each episode that was cut, the success (in [0, 1]) when it is played on from there, uncut.

    Raises:
        ValueError: numbers differ, or one is not finite; in one sentence.
    """
    flags = [flag for own in stalled for flag in own]
    changes = [change for own in falls for change in own]
    if [len(own) for own in stalled] != [len(own) for own in falls]:
        raise ValueError(
            f"every step must have a stall or none and a fall of the potential, got {len(flags)} and {len(changes)}; "
            "give one of each for each step of each episode."
        )
    for value in (*changes, *played_on):
        if not math.isfinite(value):
            raise ValueError(f"falls and successes must be finite, got {value}; leave such episodes out.")
    idle = [change <= 0 for change in changes]
    both = sum(flag and still for flag, still in zip(flags, idle, strict=True))
    return CutQuality(
        precision=both / sum(flags) if any(flags) else math.nan,
        recall=both / sum(idle) if any(idle) else math.nan,
        lost=sum(played_on) / len(played_on) if played_on else math.nan,
        steps=len(flags),
        cuts=len(played_on),
    )
