"""What `pass_at_k.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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


def _is_correct(score: float | None, threshold: float) -> bool:
    return score is not None and score >= threshold  # NaN is not
