"""The shaped reward of a step, and a Lagrangian that keeps mean costs below limits (paper CVT-RL, eqs. 2, 3, 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hf_credit.credit.inputs import as_mask, require
from hf_credit.credit.shapes import Bool, Float, Int, Real, Shaped
from hf_credit.credit.turns import alive_advantages
from hf_credit.options import NotNegative, Options
from hf_credit.validators import finite_number, one_of


@dataclass(frozen=True, kw_only=True)
class RewardWeights(Options):
    """The weights of eq. 3, each at least 0.

    Args:
        answer: lambda_y, of the check of the answer.
        evidence: lambda_e, of the evidence for the answer.
        meta: lambda_m, of steps that reduce the verifier's uncertainty.
        belief: lambda_b, of a belief that agrees with the transcript.
        contribution: lambda_Delta, of the contribution of the step.
        hack: lambda_h, of the detector score as a hack, which is subtracted.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """

    answer: NotNegative = 1.0
    evidence: NotNegative = 0.45
    meta: NotNegative = 0.18
    belief: NotNegative = 0.25
    contribution: NotNegative = 0.60
    hack: NotNegative = 0.80

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(vars(self).values()):
            raise ValueError("the weights of a reward must not all be 0, got six zeros; the paper's first is 1.")

    def reward(
        self,
        answer: float = 0.0,
        evidence: float = 0.0,
        meta: float = 0.0,
        belief: float = 0.0,
        contribution: float = 0.0,
        hack: float = 0.0,
    ) -> float:
        """The reward of a step (paper CVT-RL, eq. 3).

        r = l_y answer + l_e evidence + l_m meta + l_b belief + l_Delta contribution - l_h hack
        """
        return (
            self.answer * answer
            + self.evidence * evidence
            + self.meta * meta
            + self.belief * belief
            + self.contribution * contribution
            - self.hack * hack
        )


def harmonic_mean(first: float, second: float) -> float:
    """2 a b / (a + b), of evidence F1 and entailment; 0 if either is 0 (paper CVT-RL, section 3.1).

    Args:
        first, second: in [0, 1].
    """
    return 2 * first * second / (first + second) if first > 0 and second > 0 else 0.0


def belief_reward(
    implied: Mapping[str, Sequence[float]], held: Mapping[str, Sequence[float]], most: float = 2.0
) -> float:
    """The negative divergence of a belief from the one that the transcript implies (paper CVT-RL, section 3.3).

        -mean over slots of clip(KL(b* || b), 0, most)

    It is at most 0, so longer episodes lose more.

    Args:
        implied: b*, a distribution for each slot; missing slots are undefined.
        held: b, of at least the same slots.
        most: the maximum divergence of a slot, in nats.

    Returns:
        0 if no slot is defined.

    Raises:
        ValueError: a held belief is missing or has another length, or an implied one is not a distribution.
    """
    divergences = [min(max(_divergence(name, belief, held), 0.0), most) for name, belief in implied.items()]
    return -sum(divergences) / max(len(divergences), 1)


def _divergence(name: str, implied: Sequence[float], held: Mapping[str, Sequence[float]]) -> float:
    """KL(b* || b), infinite if b excludes a value that b* does not."""
    if len(held.get(name, ())) != len(implied):
        raise ValueError(
            f"every implied slot must have a held belief of as many values, got {len(held.get(name, ()))} for "
            f"{len(implied)} of {name!r}; use the belief head of this auditor."
        )
    if any(share < 0 for share in implied) or not math.isclose(sum(implied), 1, abs_tol=1e-6):
        raise ValueError(f"an implied belief must be a distribution, got {list(implied)} of {name!r}; normalise it.")
    pairs = [(p, q) for p, q in zip(implied, held[name], strict=True) if p > 0]
    return math.inf if any(q <= 0 for _, q in pairs) else sum(p * math.log(p / q) for p, q in pairs)


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
        one_of("rule", self.rule, ("paper", "textbook"))
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
    episodes: Int[Tensor, "episodes turns leaves"] | None = None,
) -> Float[Tensor, "episodes turns"]:
    """The discounted cost from a turn minus the mean of the other episodes that reached it: `alive_advantages`.

    The paper CVT-RL defines no advantage of costs, without which its eq. 10 has no gradient; this one is ours.

    Args:
        costs: of each turn, finite where active, at least 0.
        active: whether episode i had a turn t; an episode's active turns come first.
        gamma: discount from one turn to the next, in [0, 1].
        groups: the group of each episode, within which episodes are compared; one group if `None`.
        episodes: as in `alive_advantages`.

    Raises:
        ValueError: a cost is negative.
    """
    active = as_mask(active, "active")
    require(~active | (costs >= 0), costs, "a cost must be at least 0", "correct it")
    one_group = torch.zeros(len(costs), dtype=torch.long, device=costs.device)
    return alive_advantages(costs, active, one_group if groups is None else groups, gamma, episodes)
