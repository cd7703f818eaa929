"""An augmented Lagrangian that keeps mean costs below limits (paper CVT-RL, eqs. 2 and 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import as_mask, require
from hf_credit.credit.turn_baselines import alive_advantages
from hf_credit.validators import finite_number, one_of

RULES = ("paper", "textbook")


@dataclass(frozen=True, kw_only=True)
class Multipliers:
    """The multipliers of an augmented Lagrangian, as an immutable value.

    Args:
        limits: d, the maximum of each mean cost, by name, at least 0.
        penalty: rho of eq. 10, at least 0.
        rate: the step of the multipliers, above 0; used by the rule `paper`.
        rule: `"paper"` steps by `rate`; `"textbook"` by `penalty`, with which the method of multipliers is known to
            converge.
        values: lambda, the multiplier of each cost, by name, at least 0; 0 if missing.

    Raises:
        ValueError: a number is out of range, or a multiplier has no limit.
    """

    limits: Mapping[str, float]
    penalty: float = 2.0
    rate: float = 0.05
    rule: str = "paper"
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("rule", self.rule, RULES)
        finite_number("rate", self.rate, above=0)
        finite_number("penalty", self.penalty, 0)
        if unknown := self.values.keys() - self.limits.keys():
            raise ValueError(
                f"a multiplier must be that of a cost with a limit ({', '.join(self.limits)}), got "
                f"{sorted(unknown)[0]!r}; leave it out."
            )
        object.__setattr__(self, "values", {**dict.fromkeys(self.limits, 0.0), **self.values})
        for name, limit in self.limits.items():
            finite_number(f"the limit of {name}", limit, 0)
            finite_number(f"the multiplier of {name}", self.values[name], 0)

    def weights(self, costs: Mapping[str, float]) -> dict[str, float]:
        """The weight of an advantage in each cost, relative to one in the reward: the gradient of eq. 10.

            lambda_j + rho [J_j - d_j]_+

        In eq. 10 the terms of J are numbers of a batch, without a gradient; the gradient is that of the advantage of
        each decision in each cost (`cost_advantages`), times this weight.

        Args:
            costs: J, the mean cost of an episode, over all processes.

        Raises:
            ValueError: a cost is missing, below 0, or not finite.
        """
        excess = self._excess(costs)
        return {name: self.values[name] + self.penalty * max(0.0, excess[name]) for name in self.limits}

    def updated(self, costs: Mapping[str, float]) -> Multipliers:
        """The multipliers of the next update.

            paper:     lambda <- [lambda + rate (J - d)]_+
            textbook:  lambda <- [lambda + rho (J - d)]_+

        Args:
            costs: as for `weights`.
        """
        step = self.rate if self.rule == "paper" else self.penalty
        excess = self._excess(costs)
        return replace(self, values={name: max(0.0, old + step * excess[name]) for name, old in self.values.items()})

    def _excess(self, costs: Mapping[str, float]) -> dict[str, float]:
        measured = {name: finite_number(f"the mean cost {name}", costs.get(name, math.nan), 0) for name in self.limits}
        return {name: measured[name] - limit for name, limit in self.limits.items()}


def cost_advantages(
    costs: Shaped[Tensor, "episodes turns"],
    active: Bool[Tensor, "episodes turns"] | Real[Tensor, "episodes turns"],
    gamma: float = 1.0,
    groups: Int[Tensor, " episodes"] | None = None,
) -> Float[Tensor, "episodes turns"]:
    """The discounted cost from a turn minus the mean of the other episodes that reached it: `alive_advantages`.

    The paper CVT-RL defines no advantage of costs, without which its eq. 10 has no gradient; this one is ours.

    Args:
        costs: of each turn, finite where active, at least 0.
        active: whether episode i had a turn t; an episode's active turns come first.
        gamma: discount from one turn to the next, in [0, 1].
        groups: the group of each episode, within which episodes are compared; one group if `None`.

    Returns:
        In the dtype of `costs`, torch's default for integers and booleans; 0 where inactive.

    Raises:
        ValueError: a cost is negative.
    """
    active = as_mask(active, "active")
    require(~active | (costs >= 0), costs, "a cost must be at least 0", "correct it")
    one_group = torch.zeros(len(costs), dtype=torch.long, device=costs.device)
    return alive_advantages(costs, active, one_group if groups is None else groups, gamma)
