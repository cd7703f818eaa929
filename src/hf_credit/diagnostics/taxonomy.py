"""What went wrong at a decision, by rule (paper C3, Appendix N, Table 17)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from hf_credit.diagnostics.fidelity import flat_numbers

_SHIFT, _SAME, _FAILED = 0.2, 0.01, 0.5
_ROUNDING = 1e-9  # 0.8 - 0.6 is a little above 0.2


class Failure(StrEnum):
    """The categories, in the order in which they are looked for."""

    CREDIT_SHIFT = "successful credit shift"
    """The best alternative returned over 0.2 more than the real action: credit points somewhere better."""
    MISLEADING_PLAN = "misleading plan"
    """Nothing that was tried returned 0.5: earlier messages, or the policy itself, rules success out."""
    AMBIGUITY = "evaluator ambiguity"
    """All candidates returned the same within 0.01: no credit can tell them apart."""
    OVER_COUPLING = "over-coupling"
    """The replays of one candidate differ more than candidates do: others decide the outcome, or chance."""
    NONE = "none"
    """The decision mattered, and the real action was as good as any within 0.2."""
    UNKNOWN = "nothing to compare"
    """Fewer than two candidates were replayed, or not the real action."""


def failure_category(returns: Sequence[Sequence[float]], real: int = 0) -> Failure:
    """The category of a bucket, from the returns of its candidates.

    With R[j] the mean return of candidate j, "best" the highest of them, and the real action among the candidates, the
    first rule that holds decides:

        1. best - R[real] > 0.2                                     successful credit shift
        2. best < 0.5                                               misleading plan
        3. best - lowest < 0.01                                     evaluator ambiguity
        4. mean_j var_t R[j, t] > var_j R[j]                        over-coupling
        5. otherwise                                                none

    The thresholds are the paper's, and so is that every plan failing alike is a misleading plan (its example of one
    would meet rule 3 as well). The order is ours, and so is rule 4: the paper only says that "outcomes are dominated
    by obscure factors outside the target role's behavioral control". Returns in [0, 1] are meant throughout.

    Args:
        returns: of each candidate, its returns; a candidate without any is not compared.
        real: which candidate is the action that was really taken.

    Raises:
        ValueError: a return is not finite, or there is no such candidate.
    """
    if returns and not 0 <= real < len(returns):
        raise ValueError(f"the real action must be one of the {len(returns)} candidates, got {real}; count from 0.")
    values = [flat_numbers("returns", own) for own in returns]
    replayed = [own for own in values if len(own)]
    if len(replayed) < 2 or not len(values[real]):
        return Failure.UNKNOWN
    means = np.asarray([own.mean() for own in replayed])
    best = float(means.max())
    if best - values[real].mean() > _SHIFT + _ROUNDING:
        return Failure.CREDIT_SHIFT
    if best < _FAILED - _ROUNDING:
        return Failure.MISLEADING_PLAN
    if best - means.min() < _SAME - _ROUNDING:
        return Failure.AMBIGUITY
    if np.mean([own.var() for own in replayed]) > means.var() + _ROUNDING:
        return Failure.OVER_COUPLING
    return Failure.NONE
