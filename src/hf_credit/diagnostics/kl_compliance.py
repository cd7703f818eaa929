"""Whether updates stay within their trust region (paper CVT-RL, sections 3.3 and 4.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class KLCompliance:
    """How far updates moved a policy.

    Attributes:
        mean, p99: of the divergence of an update, in nats a token.
        within: the share of updates whose divergence is at most the radius.
        n: how many updates there were.
    """

    mean: float
    p99: float
    within: float
    n: int


def kl_compliance(divergences: Sequence[float], radius: float) -> KLCompliance:
    """How often the mean divergence of an update keeps within its budget.

        within = share of updates with mean over tokens of KL(old || new) <= delta

    A bound of the projected policy is none of the policy that an optimizer's step leads to, which is why this is
    measured. The trainers log it of steps that are logged: `trust_region/kl` and, of actions, `trust_region/kl_tool`.

    Args:
        divergences: of each update, the mean over its tokens, in nats.
        radius: delta, above 0.

    Raises:
        ValueError: there is no update, or a number is out of range.
    """
    if not divergences:
        raise ValueError("compliance is judged by at least one update, got none; read them from a run's metrics.")
    # Rounding may take a divergence of 0 a little below it.
    if wrong := [value for value in divergences if not (math.isfinite(value) and value >= -1e-6)]:
        raise ValueError(f"a divergence must be finite and at least 0, got {wrong[0]}; it is KL(old || new).")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"the radius must be above 0, got {radius}; the paper's are 0.025 and 0.010.")
    return KLCompliance(
        mean=math.fsum(divergences) / len(divergences),
        p99=float(np.quantile(divergences, 0.99)),
        within=sum(value <= radius for value in divergences) / len(divergences),
        n=len(divergences),
    )
