"""How far scores order episodes otherwise than their outcomes, and how surely that is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hf_credit.credit.inputs import require
from hf_credit.credit.shapes import Int, Real

_QUANTILE = 1.959964  # of the normal distribution, for an interval of 95 %


def disagreement(
    scores: Real[Tensor, " episodes"], outcomes: Real[Tensor, " episodes"], groups: Int[Tensor, " episodes"]
) -> tuple[float, float]:
    """The share d of pairs of episodes that scores order otherwise than outcomes (1 - the area under the ROC curve).

        d = mean over pairs with R[i] > R[j] of 1[x[i] < x[j]] + 1/2 1[x[i] = x[j]],    n = P / max_i P[i]

    of a group with P such pairs, P[i] of them with episode i. Of two outcomes, n is the number of the rarer one.

    Args:
        scores: x, finite, such as the mean verdict of each episode.
        outcomes: R, finite.
        groups: the group of each episode: any integers.

    Returns:
        nd and n, each summed over groups; 0 and 0 if no outcomes of a group differ.
    """
    require(scores.isfinite() & outcomes.isfinite(), scores, "scores and outcomes must be finite", "leave others out")
    against = comparisons = 0.0
    for group in torch.unique(groups):
        x, worth = scores[groups == group], outcomes[groups == group]
        ahead = worth[:, None] > worth
        if ahead.any():
            n = int(ahead.sum()) / int((ahead | ahead.T).sum(dim=1).max())
            wrong = (x[:, None] < x).double() + (x[:, None] == x).double() / 2
            against, comparisons = against + n * float(wrong[ahead].mean()), comparisons + n
    return against, comparisons


def sure_share(against: float, comparisons: float) -> float:
    """The lower end of the 95 % interval of a disagreement, as a share of its estimate d (Wilson, 1927).

        w = (1 + q^2/2nd - q sqrt((1 - d)/nd + q^2/(2nd)^2)) / (1 + q^2/n),    q = 1.96

    It is 0 if d is, and grows to 1 with n.

    Args:
        against, comparisons: nd and n, sums of `disagreement`.
    """
    if not against:
        return 0.0
    spread = math.sqrt((1 - against / comparisons) / against + (_QUANTILE / (2 * against)) ** 2)
    return (1 + _QUANTILE**2 / (2 * against) - _QUANTILE * spread) / (1 + _QUANTILE**2 / comparisons)
