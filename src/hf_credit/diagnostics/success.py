"""Success rates: greedy, pass@1 and unbiased pass@k (paper C3, Appendix G)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROUNDING = 1e-9


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Returns the unbiased estimate of the probability that one of k attempts succeeds (paper C3, Appendix G).

        pass@k = 1 - C(n - c, k) / C(n, k),    n samples, c of them correct

    If n - c < k, pass@k is 1, since any k samples contain a correct one. The fraction is computed as a sum of
    logarithms, which is exact up to rounding for any n.

    Args:
        samples: n, at least 1.
        correct: c, in [0, n].
        k: the number of attempts, in [1, n].

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
    """Returns the mean of `pass_at_k` over instances, in [0, 1].

    With one greedy attempt per instance and k = 1 this is the paper's greedy metric, with one sampled attempt pass@1,
    with ten and k = 10 pass@10 (Table 11). Instances may have different numbers of attempts.

    Args:
        scores: for each instance, the score of each attempt; `None` or NaN if scoring failed, which counts as
            incorrect ("invalid artifacts, sandbox timeouts and harness errors", Appendix G).
        k: at least 1, and at most the number of attempts at each instance.
        threshold: the minimum score of a correct attempt, up to the rounding of a sum of rewards.

    Raises:
        ValueError: there is no instance, or k is out of range.
    """
    return float(np.mean(pass_at_k_by_instance(scores, k, threshold)))


def pass_at_k_by_instance(scores: Sequence[Sequence[float | None]], k: int, threshold: float = 1.0) -> list[float]:
    """Returns the `pass_at_k` of each instance, for paired comparisons.

    Args:
        scores, k, threshold: as in `mean_pass_at_k`.

    Raises:
        ValueError: there is no instance, or k is out of range.
    """
    if not len(scores):
        raise ValueError("pass@k needs at least 1 instance, got none; evaluate more tasks.")
    # NaN is below every threshold.
    correct = [sum(score is not None and score >= threshold - _ROUNDING for score in own) for own in scores]
    return [pass_at_k(len(own), count, k) for own, count in zip(scores, correct, strict=True)]
