"""How far verdicts order episodes as their outcomes do, and how surely that is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hf_credit.credit.inputs import require
from hf_credit.credit.shapes import Int, Real
from hf_credit.validators import finite_number

_QUANTILE = 1.959964  # of the normal distribution, for an interval of 95 %


def disagreement(
    scores: Real[Tensor, " episodes"], outcomes: Real[Tensor, " episodes"], groups: Int[Tensor, " episodes"]
) -> tuple[float, float]:
    """How often a score orders two episodes of a group otherwise than their outcomes (1 - the area under the ROC curve).

        d = mean over pairs with R[i] > R[j] of  1[x[i] < x[j]] + 1/2 1[x[i] = x[j]],      n = P / max_i P[i]

    with P the number of such pairs of a group and P[i] those with episode i. With two outcomes n is the number of
    episodes with the rarer one: each is one comparison, with all the others.

    Args:
        scores: x, in any unit, such as the mean verdict of an episode.
        outcomes: R, in any unit.
        groups: the group of each episode: any integers; only episodes of one group are compared.

    Returns:
        n d and n, each summed over groups; (0, 0) if no outcomes differ.

    Raises:
        ValueError: a score or an outcome is not finite.
    """
    for name, values in (("scores", scores), ("outcomes", outcomes)):
        require(values.isfinite(), values, f"{name} must be finite", "leave out episodes without one")
    against = comparisons = 0.0
    for group in torch.unique(groups):
        x, worth = (values[groups == group].double() for values in (scores, outcomes))
        ahead = worth[:, None] > worth[None, :]
        pairs = int(ahead.sum())
        if pairs:
            wrong = (x[:, None] < x[None, :]).double() + (x[:, None] == x[None, :]).double() / 2
            own = pairs / int((ahead | ahead.T).sum(dim=1).max())
            against += own * float(wrong[ahead].mean())
            comparisons += own
    return against, comparisons


def surely_known(against: float, comparisons: float) -> float:
    """Which share of a disagreement is sure: the lower end of its interval (Wilson, 1927), as a share of the estimate.

        w = (1 + q^2/2nd - q sqrt((1 - d)/nd + q^2/(2nd)^2)) / (1 + q^2/n),      q = 1.96

    It is 0 without disagreement, and with more comparisons tends to 1, as 1 - q sqrt((1 - d)/nd).

    Args:
        against: nd, at least 0, as from `disagreement`.
        comparisons: n, at least `against`.

    Raises:
        ValueError: an argument is out of range.
    """
    finite_number("comparisons", comparisons, 0)
    finite_number("against", against, 0, most=comparisons)
    if not against:
        return 0.0
    half = _QUANTILE**2 / (2 * against)
    spread = math.sqrt((1 - against / comparisons) / against + (_QUANTILE / (2 * against)) ** 2)
    return max(0.0, (1 + half - _QUANTILE * spread) / (1 + _QUANTILE**2 / comparisons))
