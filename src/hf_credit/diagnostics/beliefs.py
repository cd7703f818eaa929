"""The error of beliefs against the truth or labels (papers T3, CVT-RL), and the precision of truncation rules (T3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

from hf_credit.credit import belief_reward

Distribution = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class BeliefPotential:
    """The potentials of an agent's and an oracle's beliefs.

    Attributes:
        potential: the agent's, -log of its belief in the truth (Def. 3), in nats; mean over states.
        oracle_potential: the oracle's, log of the number of possible hypotheses, in nats; mean over states.
        distance: the L1 distance between the two beliefs, in [0, 2]; mean over states.
        by_state: these three numbers for each state.
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
    """Computes the potentials of the agent's and the oracle's beliefs, and their distance (paper T3, Defs. 3 and B.1).

    The agent's belief is the distribution of answers sampled at a state, with pseudo-count `alpha` for every
    hypothesis that is possible or was answered. The oracle's belief is uniform over the possible hypotheses.

    Args:
        answers: for each state, the agent's sampled answers.
        possible: for each state, all hypotheses that agree with the observations, including the truth.
        truths: for each state, the true hypothesis.
        alpha: the pseudo-count, at least 0; with 0 the potential is infinite if no answer is the truth.

    Raises:
        ValueError: `alpha` is below 0, lengths differ, or a truth is not among the possible hypotheses.
    """
    if not (alpha >= 0 and len(answers) == len(possible) == len(truths)):
        raise ValueError(
            "beliefs need alpha >= 0, and answers, hypotheses and a truth for each state, got "
            f"{alpha}, {len(answers)}, {len(possible)} and {len(truths)}; pass one of each per state."
        )
    found = [
        _state_potential(Counter(sampled), frozenset(hypotheses), truth, alpha)
        for sampled, hypotheses, truth in zip(answers, possible, truths, strict=True)
    ]
    means = [sum(column) / len(found) if found else math.nan for column in zip(*found, strict=True)] or [math.nan] * 3
    return BeliefPotential(potential=means[0], oracle_potential=means[1], distance=means[2], by_state=tuple(found))


def _state_potential(
    answers: Counter[Hashable], possible: frozenset[Hashable], truth: Hashable, alpha: float
) -> tuple[float, float, float]:
    if truth not in possible:
        raise ValueError(f"the truth must be a possible hypothesis, got {truth!r}; add it to the hypotheses.")
    support = possible | set(answers)
    total = answers.total() + alpha * len(support)
    if total == 0:
        raise ValueError("a state needs an answer if alpha is 0, got none; sample one, or raise alpha.")
    belief = {hypothesis: (answers[hypothesis] + alpha) / total for hypothesis in support}
    distance = sum(abs(share - (hypothesis in possible) / len(possible)) for hypothesis, share in belief.items())
    return math.inf if belief[truth] == 0 else -math.log(belief[truth]), math.log(len(possible)), distance


@dataclass(frozen=True, kw_only=True)
class CutQuality:
    """How well stalls predict steps without progress, and the cost of cuts.

    Attributes:
        precision: the share of stalled steps that made no progress; NaN without a stalled step.
        recall: the share of steps without progress that stalled; NaN if all steps made progress.
        lost: the mean success of cut episodes that are continued; NaN without one.
        steps, cuts: the number of steps, and of cut episodes.
    """

    precision: float
    recall: float
    lost: float
    steps: int
    cuts: int


def cut_quality(
    stalled: Sequence[Sequence[bool]], falls: Sequence[Sequence[float]], played_on: Sequence[float] = ()
) -> CutQuality:
    """Measures how well a truncation rule detects steps without progress, and how many of its cuts lost a success.

    A step makes progress if it lowers the potential of the belief (paper T3, Def. 5: P > 0).

    Args:
        stalled: for each episode, whether each step stalled by the rule.
        falls: for each episode, the decrease of the potential by each step, in nats; finite.
        played_on: for each cut episode, its success in [0, 1] if it is continued from the cut.

    Raises:
        ValueError: lengths differ, or a number is not finite.
    """
    flags = [flag for own in stalled for flag in own]
    changes = [change for own in falls for change in own]
    if [len(own) for own in stalled] != [len(own) for own in falls]:
        raise ValueError(
            f"stalled and falls must have one entry per step of each episode, got {len(flags)} and {len(changes)} in "
            "other lengths; pass one of each per step."
        )
    for value in (*changes, *played_on):
        if not math.isfinite(value):
            raise ValueError(f"falls and successes must be finite, got {value}; omit such episodes.")
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
    """The errors of beliefs, as means over beliefs; NaN without beliefs.

    Attributes:
        deviation: KL(b* || b) in nats, each clipped to [0, most].
        accuracy: the share of beliefs with the same likeliest value as the label; of tied values each its share.
        calibration_error: the expected calibration error (ECE) of the likeliest values.
        n: the number of beliefs.
    """

    deviation: float
    accuracy: float
    calibration_error: float
    n: int


def belief_deviation(
    beliefs: Sequence[Distribution], labels: Sequence[Distribution], most: float = 2.0, bins: int = 10
) -> BeliefDeviation:
    """Computes the divergence of beliefs b from labels b*, their accuracy and their calibration error.

        KL(b* || b) = sum over values v of b*(v) log(b*(v) / b(v))

        ECE = sum over bins B of |B| / n * | mean of max b - share of right ones |

    The likeliest value of a belief is right if it is the likeliest value of the label. Its probability determines its
    bin; bins divide [0, 1] equally (Guo et al., On Calibration of Modern Neural Networks, 2017). If b is 0 where b* is
    not, the divergence is infinite and clipped to `most`.

    Args:
        beliefs, labels: pairs of distributions: each pair has the same number of values, at least 0, that sum to 1.
        most: the upper clip of a divergence, above 0; 2 in the paper.
        bins: the number of bins, at least 1.

    Raises:
        ValueError: a belief or label is not a distribution, lengths differ, or an option is out of range.
    """
    if not most > 0 or bins < 1:
        raise ValueError(f"most must be above 0 and bins at least 1, got {most} and {bins}; correct them.")
    divergences, confidences, right = [], [], []
    for belief, label in zip(beliefs, labels, strict=True):
        if len(belief) != len(label):
            raise ValueError(
                f"a belief and its label must have the same length, got {len(belief)} and {len(label)}; correct one."
            )
        _check("belief", belief)
        _check("label", label)
        divergences.append(-belief_reward({"": label}, {"": belief}, most))
        confidences.append(max(belief))
        top = _likeliest(belief)
        right.append(len(top & _likeliest(label)) / len(top))
    if not right:
        return BeliefDeviation(deviation=math.nan, accuracy=math.nan, calibration_error=math.nan, n=0)
    error = _calibration_error(confidences, right, bins)
    return BeliefDeviation(deviation=fmean(divergences), accuracy=fmean(right), calibration_error=error, n=len(right))


def _calibration_error(confidences: Sequence[float], right: Sequence[float], bins: int) -> float:
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
            f"a {what} must be a distribution, of numbers at least 0 that sum to 1, got {list(shares)}; normalise it."
        )
