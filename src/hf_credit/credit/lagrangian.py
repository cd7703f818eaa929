"""Costs held under limits by an augmented Lagrangian (paper CVT-RL, eqs. 2 and 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import as_mask
from hf_credit.credit.turn_baselines import alive_advantages

RULES = ("paper", "textbook")


@dataclass(frozen=True, kw_only=True)
class Multipliers:
    """The multipliers of an augmented Lagrangian, as a value that goes from update to update.

    Args:
        limits: d, the most that each cost may be in the mean, by name, at least 0.
        penalty: rho of eq. 10, at least 0.
        rate: the step of the multipliers, above 0; read by the rule `paper`.
        rule: `"paper"` steps by `rate`, `"textbook"` by `penalty`, for which the method of multipliers is known to
            converge.
        values: lambda, the multiplier of each cost, at least 0; all 0 where left out.

    Raises:
        ValueError: a number is out of range, or a multiplier is of a cost without a limit.
    """

    limits: Mapping[str, float]
    penalty: float = 2.0
    rate: float = 0.05
    rule: str = "paper"
    values: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}; pick one.")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ValueError(f"rate must be above 0, got {self.rate}; the paper's is 0.05.")
        values = dict.fromkeys(self.limits, 0.0) if self.values is None else dict(self.values)
        if values.keys() != self.limits.keys():
            raise ValueError(
                f"every cost with a limit must have a multiplier and no other, got limits of {', '.join(self.limits)} "
                f"and multipliers of {', '.join(values)}; name the same."
            )
        numbers = {"penalty": self.penalty, **{f"the limit of {name}": value for name, value in self.limits.items()}}
        numbers |= {f"the multiplier of {name}": value for name, value in values.items()}
        for name, value in numbers.items():
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be finite and at least 0, got {value}; correct it.")
        object.__setattr__(self, "values", values)

    def weights(self, costs: Mapping[str, float]) -> dict[str, float]:
        """What an advantage in each cost weighs against one in the reward: the gradient of eq. 10.

            lambda_j + rho [J_j - d_j]_+

        In eq. 10 the terms of J are numbers of a batch, which have no gradient; it has to come through the advantage
        of each decision in each cost (`cost_advantages`), times this.

        Args:
            costs: J, the mean cost of an episode, over all processes.

        Raises:
            ValueError: a cost is missing, or is no number of at least 0.
        """
        excess = self._excess(costs)
        assert self.values is not None
        return {name: self.values[name] + self.penalty * max(0.0, excess[name]) for name in self.limits}

    def updated(self, costs: Mapping[str, float]) -> Multipliers:
        """The multipliers of the next update, to be asked for after the policy has used these.

            paper:     lambda <- [lambda + rate (J - d)]_+
            textbook:  lambda <- [lambda + rho (J - d)]_+

        Args:
            costs: as for `weights`.
        """
        step = self.rate if self.rule == "paper" else self.penalty
        excess = self._excess(costs)
        assert self.values is not None
        return replace(self, values={name: max(0.0, old + step * excess[name]) for name, old in self.values.items()})

    def _excess(self, costs: Mapping[str, float]) -> dict[str, float]:
        for name in self.limits:
            cost = costs.get(name, math.nan)
            if not (cost >= 0 and math.isfinite(cost)):
                raise ValueError(f"every cost with a limit must be measured, at least 0, got {cost} for {name!r}.")
        return {name: costs[name] - limit for name, limit in self.limits.items()}


def cost_advantages(
    costs: Shaped[Tensor, "episodes turns"],
    active: Bool[Tensor, "episodes turns"] | Real[Tensor, "episodes turns"],
    gamma: float = 1.0,
    groups: Int[Tensor, " episodes"] | None = None,
) -> Float[Tensor, "episodes turns"]:
    """The discounted cost from a turn on, less the mean of the other episodes that reached it: `alive_advantages`.

    The paper CVT-RL has no advantage of costs, without which its eq. 10 has no gradient; this one is ours.

    Args:
        costs: of each turn, finite where active, at least 0.
        active: whether episode i had a turn t; an episode's active turns come first.
        gamma: discount from one turn to the next, in [0, 1].
        groups: of which task each episode is, where only these are compared; all if `None`.

    Returns:
        In the dtype of `costs`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: a cost is negative.
    """
    active = as_mask(active, "active")
    negative = active & (costs < 0)
    if bool(negative.any()):
        raise ValueError(f"a cost must be at least 0, got {costs[negative][0].item()}; count what it costs.")
    everybody = torch.zeros(len(costs), dtype=torch.long, device=costs.device)
    return alive_advantages(costs, active, everybody if groups is None else groups, gamma)
