"""How often a policy succeeds: greedy, pass@1, unbiased pass@k, and how policies compare (paper C3, Appendix G)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hf_credit.evaluation.statistics import Interval, stratified_paired_difference


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The unbiased estimate of the chance that one of k attempts at an instance succeeds (paper C3, Appendix G).

        pass@k = 1 - C(n - c, k) / C(n, k),    n samples, c of them correct

    The fraction is 0 where n - c < k: any k of the samples then hold a correct one, and pass@k is 1. It is computed as
    a sum of logarithms, exact to rounding for any n, also where it is tiny.

    Args:
        samples: n, at least 1.
        correct: c, in [0, n].
        k: in [1, n].

    Returns:
        In [0, 1].

    Raises:
        ValueError: a number is out of range.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(
            f"pass@k needs 1 <= k <= samples and 0 <= correct <= samples, got k = {k}, {samples} samples and "
            f"{correct} correct; draw more samples or ask for a smaller k."
        )
    if samples - correct < k:
        return 1.0
    # C(n - c, k) / C(n, k) = prod_{i < k} (1 - c / (n - i)), and the same with c and k exchanged.
    few, many = sorted((correct, k))
    return float(-np.expm1(np.log1p(-many / (samples - np.arange(few, dtype=np.float64))).sum()))


def mean_pass_at_k(scores: Sequence[Sequence[float | None]], k: int, threshold: float = 1.0) -> float:
    """The mean of `pass_at_k` over instances.

    With one deterministic attempt at each instance and k = 1 this is the paper's greedy metric, with one drawn attempt
    pass@1, with ten of them and k = 10 pass@10 (Table 11). Instances may have different numbers of attempts.

    Args:
        scores: of each instance, the score of each attempt; `None` or NaN where an attempt failed to be scored, which
            counts as incorrect ("invalid artifacts, sandbox timeouts and harness errors", Appendix G).
        k: in [1, attempts at every instance].
        threshold: the least score that is correct.

    Returns:
        In [0, 1].

    Raises:
        ValueError: there is no instance, or k is out of range.
    """
    return float(np.mean(pass_at_k_by_instance(scores, k, threshold)))


def pass_at_k_by_instance(scores: Sequence[Sequence[float | None]], k: int, threshold: float = 1.0) -> list[float]:
    """`pass_at_k` of each instance, for paired comparisons.

    Args:
        scores, k, threshold: as in `mean_pass_at_k`.

    Raises:
        ValueError: there is no instance, or k is out of range.
    """
    if not len(scores):
        raise ValueError("pass@k needs at least 1 instance, got none; evaluate some.")
    return [pass_at_k(len(own), sum(_is_correct(score, threshold) for score in own), k) for own in scores]


def mean_score(scores: Sequence[float | None]) -> float:
    """The mean over instances of one attempt's score each: greedy and pass@1 where scores may lie between 0 and 1.

    The unit tests' share of a program counts as what it is, while `mean_pass_at_k` asks for all of them.

    Args:
        scores: of each instance; `None` or NaN where the attempt failed to be scored, which counts as 0.

    Raises:
        ValueError: there is no instance.
    """
    if not len(scores):
        raise ValueError("a mean score needs at least 1 instance, got none; evaluate some.")
    return float(np.mean([0.0 if score is None or math.isnan(score) else score for score in scores]))


def seed_averaged_difference(
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The difference of two methods, averaged over seeds, with its paired interval (paper C3, Appendix G).

    In each resample the instances of each training seed are redrawn, the same ones for both methods; the mean
    differences of the seeds are averaged; the interval holds the middle 95% of these. Of few instances it is
    Student's. It speaks about these training runs on other instances of the kind, not about other training runs: see
    `stratified_paired_difference`.

    Args:
        a, b: of each training seed, the score of each instance, finite; all seeds have the same instances.
        confidence, resamples, seed: as in `hf_credit.evaluation.statistics.mean_interval`.

    Returns:
        With `n` the number of pairs.

    Raises:
        ValueError: the seeds or instances of a and b do not match, there are fewer than two instances, or a score is
            not finite.
        ImportError: scipy is missing.
    """
    sizes = [[len(own) for own in side] for side in (a, b)]
    if sizes[0] != sizes[1] or len(set(sizes[0])) != 1:
        raise ValueError(
            f"two methods must be compared on the same instances with every seed, got {sizes[0]} and {sizes[1]} "
            "scores by seed; evaluate both on one split."
        )
    strata = [place for place, own in enumerate(a) for _ in own]
    first, second = ([score for own in side for score in own] for side in (a, b))
    return stratified_paired_difference(first, second, strata, confidence, resamples, seed)


def _is_correct(score: float | None, threshold: float) -> bool:
    return score is not None and score >= threshold  # NaN is not
