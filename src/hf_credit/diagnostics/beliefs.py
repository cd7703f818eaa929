"""Beliefs: how far they are from the truth or a transcript (papers T3, CVT-RL), and whether cuts were right (T3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

Distribution = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class BeliefPotential:
    """Beliefs at some states.

    Attributes:
        potential: -log of the agent's belief in the truth (Def. 3), in nats, a mean over states.
        oracle_potential: that of the oracle, the log of how many hypotheses are left, a mean over states.
        distance: L1 between the two, in [0, 2], a mean over states.
        by_state: the three for each state.
    """

    potential: float
    oracle_potential: float
    distance: float
    by_state: tuple[tuple[float, float, float], ...]


def belief_potential(
    answers: Sequence[Sequence[Hashable]],
    possible: Sequence[Collection[Hashable]],
    truths: Sequence[Hashable],
    alpha: float = 0.5,
) -> BeliefPotential:
    """The potential of an agent's belief, of the oracle's, and the distance of the two (paper T3, Defs. 3 and B.1).

    The agent's belief is that of its answers: sampled at one state where it was asked for the answer, with a
    pseudo-count for every hypothesis that is possible or was named. The oracle's is uniform over what is possible.

    Args:
        answers: at each state, what the agent answered in each sample.
        possible: at each state, all hypotheses that agree with what was observed; the truth is one.
        truths: at each state.
        alpha: the pseudo-count; with 0 a truth that was never named is infinitely far.

    Raises:
        ValueError: `alpha` is below 0, numbers differ, or a truth is not possible; in one sentence.
    """
    if not (alpha >= 0 and len(answers) == len(possible) == len(truths)):
        raise ValueError(
            "beliefs need alpha >= 0, and answers, hypotheses and a truth for each state, got "
            f"{alpha}, {len(answers)}, {len(possible)} and {len(truths)}; give one of each."
        )
    found = [
        _of_state(Counter(own), frozenset(left), truth, alpha)
        for own, left, truth in zip(answers, possible, truths, strict=True)
    ]
    means = [sum(column) / len(found) if found else math.nan for column in zip(*found, strict=True)] or [math.nan] * 3
    return BeliefPotential(potential=means[0], oracle_potential=means[1], distance=means[2], by_state=tuple(found))


def _of_state(
    named: Counter[Hashable], possible: frozenset[Hashable], truth: Hashable, alpha: float
) -> tuple[float, float, float]:
    if truth not in possible:
        raise ValueError(f"the truth must be among what is possible, got {truth!r} outside; check the hypotheses.")
    support = possible | set(named)
    total = named.total() + alpha * len(support)
    if total == 0:
        raise ValueError("a state must have an answer where alpha is 0, got none; sample one, or raise alpha.")
    belief = {one: (named[one] + alpha) / total for one in support}
    distance = sum(abs(share - (one in possible) / len(possible)) for one, share in belief.items())
    return (
        math.inf if belief[truth] == 0 else -math.log(belief[truth]),
        math.log(len(possible)),
        distance,
    )


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
