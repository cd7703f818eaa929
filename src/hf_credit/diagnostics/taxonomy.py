"""Failure categories of decisions, by rule (paper C3, Appendix N, Table 17)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from hf_credit.evaluation.statistics import sample_of

_SHIFT, _SAME, _FAILED = 0.2, 0.01, 0.5
_ROUNDING = 1e-9  # 0.8 - 0.6 is slightly above 0.2


class Failure(StrEnum):
    """The failure categories, in the order of their rules."""

    CREDIT_SHIFT = "successful credit shift"
    """The best alternative returned over 0.2 more than the real action: credit points to a better one."""
    MISLEADING_PLAN = "misleading plan"
    """No candidate returned 0.5: earlier messages, or the policy, prevent success."""
    AMBIGUITY = "evaluator ambiguity"
    """All candidates returned the same within 0.01: credit cannot distinguish them."""
    OVER_COUPLING = "over-coupling"
    """The replays of one candidate differ more than the candidates do: other roles or chance determine the outcome."""
    NONE = "none"
    """The candidates differ, and the real action is within 0.2 of the best."""
    UNKNOWN = "nothing to compare"
    """Fewer than two candidates were replayed, or the real action was not."""


def failure_category(returns: Sequence[Sequence[float]]) -> Failure:
    """Returns the failure category of a bucket.

    With R[j] the mean return of candidate j, R[1] that of the real action, and best and lowest over candidates, the
    first rule that holds decides:

        1. best - R[1] > 0.2                                        successful credit shift
        2. best < 0.5                                               misleading plan
        3. best - lowest < 0.01                                     evaluator ambiguity
        4. mean_j var_t R[j, t] > var_j R[j]                        over-coupling
        5. otherwise                                                none

    The thresholds are the paper's. Rule 2 precedes rule 3 since the paper's example of a misleading plan, where all
    candidates fail alike, meets both. The order of the other rules and rule 4 are this library's: for over-coupling
    the paper only says that "outcomes are dominated by obscure factors outside the target role's behavioral control".

    Args:
        returns: the returns of each candidate, in [0, 1]; a candidate without returns is not compared.

    Raises:
        ValueError: a return is not finite.
    """
    values = [sample_of("returns", own, 0) for own in returns]
    replayed = [own for own in values if len(own)]
    if len(replayed) < 2 or not len(values[0]):
        return Failure.UNKNOWN
    means = np.asarray([own.mean() for own in replayed])
    best = float(means.max())
    if best - values[0].mean() > _SHIFT + _ROUNDING:
        return Failure.CREDIT_SHIFT
    if best < _FAILED - _ROUNDING:
        return Failure.MISLEADING_PLAN
    if best - means.min() < _SAME - _ROUNDING:
        return Failure.AMBIGUITY
    if np.mean([own.var() for own in replayed]) > means.var() + _ROUNDING:
        return Failure.OVER_COUPLING
    return Failure.NONE
