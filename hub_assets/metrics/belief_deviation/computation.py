"""What `belief_deviation.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

Distribution = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class BeliefDeviation:
    """Of beliefs, means; NaN where there are none.

    Attributes:
        deviation: KL(b* || b), each clipped to [0, most], in nats.
        accuracy: how often the likeliest value is the likeliest of the label; a tie counts if they share one.
        calibration_error: the expected calibration error of the likeliest value's share.
        n: how many beliefs there were.
    """

    deviation: float
    accuracy: float
    calibration_error: float
    n: int


def belief_deviation(
    beliefs: Sequence[Distribution], labels: Sequence[Distribution], most: float = 2.0, bins: int = 10
) -> BeliefDeviation:
    """The distance of beliefs b from labels b*, and how well they know how sure they may be.

        KL(b* || b) = sum over values v of b*(v) log(b*(v) / b(v))

        ECE = sum over bins B of |B| / n * | mean of max b - share of right ones |

    The likeliest value of a belief is right where it is the likeliest of its label, and falls into one of the equal
    bins of [0, 1] by its share (Guo et al., On Calibration of Modern Neural Networks, 2017). A belief of 0 in what the
    label holds possible is infinitely far off and counts as `most`.

    Args:
        beliefs, labels: as many of both; of each pair the same number of values, shares of at least 0 that sum to 1.
        most: where a divergence is clipped, above 0; 2 in the paper.
        bins: at least 1.

    Raises:
        ValueError: one is no distribution, lengths differ, or an option is out of its range.
    """
    if not most > 0 or bins < 1:
        raise ValueError(f"most must be above 0 and bins at least 1, got {most} and {bins}; correct them.")
    divergences, confidences, right = [], [], []
    for belief, label in zip(beliefs, labels, strict=True):
        if len(belief) != len(label):
            raise ValueError(
                f"a belief and its label must have as many values, got {len(belief)} and {len(label)}; correct one."
            )
        _check("belief", belief)
        _check("label", label)
        divergences.append(min(max(_divergence(label, belief), 0.0), most))
        confidences.append(max(belief))
        right.append(bool(_likeliest(belief) & _likeliest(label)))
    if not right:
        return BeliefDeviation(deviation=math.nan, accuracy=math.nan, calibration_error=math.nan, n=0)
    return BeliefDeviation(
        deviation=fmean(divergences),
        accuracy=fmean(right),
        calibration_error=_calibration_error(confidences, right, bins),
        n=len(right),
    )


def _divergence(label: Distribution, belief: Distribution) -> float:
    return sum(
        (math.inf if not share else wanted * math.log(wanted / share))
        for wanted, share in zip(label, belief, strict=True)
        if wanted
    )


def _calibration_error(confidences: Sequence[float], right: Sequence[bool], bins: int) -> float:
    members: dict[int, list[int]] = {}
    for place, confidence in enumerate(confidences):
        members.setdefault(min(int(confidence * bins), bins - 1), []).append(place)
    return sum(
        len(places) / len(right) * abs(fmean(confidences[p] for p in places) - fmean(right[p] for p in places))
        for places in members.values()
    )


def _likeliest(shares: Distribution) -> set[int]:
    top = max(shares)
    return {place for place, share in enumerate(shares) if share == top}


def _check(what: str, shares: Distribution) -> None:
    if not shares or not all(share >= 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise ValueError(
            f"a {what} must be a distribution, shares of at least 0 that sum to 1, got {list(shares)}; normalise it."
        )
