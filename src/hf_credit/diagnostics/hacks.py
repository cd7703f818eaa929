"""How often an agent hacks its check, when the detectors that say so err (paper CVT-RL, sections 4.1 and 4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class DetectorErrors:
    """How often a detector errs, where the truth is known.

    Attributes:
        false_positive_rate: the share of clean episodes (or steps) that it flags; NaN without any.
        false_negative_rate: the share of hacked ones that it misses; NaN without any.
        clean, hacked: how many there were.
    """

    false_positive_rate: float
    false_negative_rate: float
    clean: int
    hacked: int


@dataclass(frozen=True, kw_only=True)
class HackRate:
    """How often there was a hack.

    Attributes:
        apparent: the share that was flagged.
        corrected: what that says of the true share, given how the detector errs; in [0, 1].
        low, high: the interval of `corrected`, in [0, 1].
        n: how many there were.
    """

    apparent: float
    corrected: float
    low: float
    high: float
    n: int


def detector_errors(flagged: Sequence[bool], hacked: Sequence[bool]) -> DetectorErrors:
    """The false positive and false negative rates of a detector.

        FPR = flagged and clean / clean,   FNR = not flagged and hacked / hacked

    Args:
        flagged: what the detector says of each episode, or step.
        hacked: what is true of it.

    Raises:
        ValueError: there are not as many of both.
    """
    pairs = list(zip(flagged, hacked, strict=True))
    clean = [flag for flag, was in pairs if not was]
    bad = [flag for flag, was in pairs if was]
    return DetectorErrors(
        false_positive_rate=sum(clean) / len(clean) if clean else math.nan,
        false_negative_rate=1 - sum(bad) / len(bad) if bad else math.nan,
        clean=len(clean),
        hacked=len(bad),
    )


def hack_rate(
    flagged: Sequence[bool],
    false_positive_rate: float = 0.0,
    false_negative_rate: float = 0.0,
    clean: int | None = None,
    hacked: int | None = None,
    confidence: float = 0.95,
) -> HackRate:
    """The share of episodes with a hack, corrected for a detector that errs (Rogan and Gladen, 1978).

        corrected = (apparent - FPR) / (1 - FPR - FNR),   clipped to [0, 1]

    and its interval is c -+ z sd, clipped, with the variance by the delta method

        sd^2 = [ a (1 - a) / m + c^2 FNR (1 - FNR) / hacked + (1 - c)^2 FPR (1 - FPR) / clean ] / (1 - FPR - FNR)^2
        a = (flagged + z^2 / 2) / m,   m = n + z^2,   c = (a - FPR) / (1 - FPR - FNR), clipped to [0, 1]

    where the error rates were measured on so many hacked and clean ones; the last two terms are 0 where they are
    known. Flags count as in the interval of Agresti and Coull (1998): without any, a plain share has no variance and
    its interval no width. The corrected share is below the apparent one where flags are mostly false.

    Args:
        flagged: what the detector says of each episode, at least one.
        false_positive_rate, false_negative_rate: of the detector, which sum to less than 1.
        clean, hacked: on how many the rates were measured; `None` where they are known.
        confidence: of the interval, in (0, 1).

    Raises:
        ValueError: there is no episode, a rate is outside [0, 1), or the detector is no better than chance.
    """
    if not flagged:
        raise ValueError("a hack rate needs at least one episode, got none; play some.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}; 0.95 is usual.")
    fpr, fnr = false_positive_rate, false_negative_rate
    if not (fpr >= 0 and fnr >= 0 and fpr + fnr < 1):
        raise ValueError(
            f"a detector's false positive and false negative rates must be at least 0 and sum to less than 1, got "
            f"{fpr} and {fnr}; one that is no better than chance says nothing."
        )
    count, z = sum(map(bool, flagged)), NormalDist().inv_cdf((1 + confidence) / 2)

    def corrected(share: float) -> float:
        return min(max((share - fpr) / (1 - fpr - fnr), 0.0), 1.0)

    several = len(flagged) + z**2
    middle = (count + z**2 / 2) / several
    centre = corrected(middle)
    variance = middle * (1 - middle) / several
    variance += centre**2 * fnr * (1 - fnr) / hacked if hacked else 0.0
    variance += (1 - centre) ** 2 * fpr * (1 - fpr) / clean if clean else 0.0
    reach = z * math.sqrt(variance) / (1 - fpr - fnr)
    return HackRate(
        apparent=count / len(flagged),
        corrected=corrected(count / len(flagged)),
        low=max(centre - reach, 0.0),
        high=min(centre + reach, 1.0),
        n=len(flagged),
    )
