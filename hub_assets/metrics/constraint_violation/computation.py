"""What `constraint_violation.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ConstraintViolation:
    """A cost and its limit.

    Attributes:
        cost: the mean over episodes, J.
        violation: how far it is above the limit, max(0, J - d).
        episodes_above: the share of episodes whose own cost is above the limit.
        n: how many episodes there were.
    """

    cost: float
    violation: float
    episodes_above: float
    n: int


def constraint_violation(costs: Sequence[float], limit: float) -> ConstraintViolation:
    """How far the mean cost of episodes is above its limit.

        J = mean over episodes of sum over t of gamma^t c_t,   violation = max(0, J - d)

    Args:
        costs: of each episode, as `discounted_cost` sums them, at least one.
        limit: d, at least 0.

    Raises:
        ValueError: there is no episode, a cost is negative or no number, or the limit is negative.
    """
    if not costs:
        raise ValueError("a constraint is judged by at least one episode, got none; play some.")
    for name, values in (("cost", costs), ("limit", [limit])):
        if wrong := [value for value in values if not (math.isfinite(value) and value >= 0)]:
            raise ValueError(f"a {name} must be a number of at least 0, got {wrong[0]}; correct it.")
    mean = math.fsum(costs) / len(costs)
    return ConstraintViolation(
        cost=mean,
        violation=max(0.0, mean - limit),
        episodes_above=sum(cost > limit for cost in costs) / len(costs),
        n=len(costs),
    )
