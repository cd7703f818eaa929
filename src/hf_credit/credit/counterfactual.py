"""Contributions of agents to their team, shaped by running moments into rewards, and their variance (paper CCPO)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from hf_credit.credit.group_advantages import group_advantages
from hf_credit.credit.inputs import require
from hf_credit.credit.leave_one_out import full_mean
from hf_credit.credit.shapes import Float, Int, Shaped
from hf_credit.validators import finite_number


class Moment(NamedTuple):
    """The running moments of one stream.

    Attributes:
        mean: moving average of the batch means.
        variance: moving average of the batch variances.
        seen: total number of values.
    """

    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def deviation(self, unit_below: float) -> float:
        """The square root of the variance; 1 if the variance is at most `unit_below`."""
        return 1.0 if self.variance <= unit_below else self.variance**0.5


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Exponential moving averages of batch moments (paper CCPO, eqs. 2 and 3), as an immutable value.

        mu[t]      = decay * mu[t-1]      + (1 - decay) * mean of the batch
        sigma2[t]  = decay * sigma2[t-1]  + (1 - decay) * variance of the batch

    As in the public code, the variance is that of the batch around its own mean (divided by n): it does not include
    the variance of batch means. The first batch of a stream sets its moments.

    Attributes:
        names, means, variances, seen: of each stream, in the order of their first batches.
    """

    names: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    seen: tuple[int, ...] = ()

    def of(self, name: str) -> Moment:
        """The moments of a stream; those of an empty stream if the name is unknown."""
        return self._by_name().get(name, Moment())

    def updated(self, batch: Mapping[str, Sequence[float]], decay: float) -> Moments:
        """The moments after one more batch.

        Args:
            batch: the values of each stream, from all processes; a stream without values does not change.
            decay: lambda, in [0, 1).
        """
        moments = self._by_name()
        for name, values in batch.items():
            if not values:
                continue
            old = moments.get(name, Moment())
            mean = sum(values) / len(values)
            variance = fmean((value - mean) ** 2 for value in values)
            kept = decay if old.seen else 0.0
            moments[name] = Moment(
                mean=kept * old.mean + (1 - kept) * mean,
                variance=kept * old.variance + (1 - kept) * variance,
                seen=old.seen + len(values),
            )
        means, variances, seen = zip(*moments.values(), strict=True) if moments else ((), (), ())
        return Moments(names=tuple(moments), means=means, variances=variances, seen=seen)

    def _by_name(self) -> dict[str, Moment]:
        columns = zip(self.means, self.variances, self.seen, strict=True)
        return dict(zip(self.names, map(Moment._make, columns), strict=True))


def standardised(
    values: Float[Tensor, " rollouts"], mean: float, deviation: float, eps: float = 1e-6
) -> Float[Tensor, " rollouts"]:
    """Values minus a running mean, in running standard deviations (CCPO, eq. 4 and Appendix B.2).

        z = (x - mu) / (sigma + eps)

    Args:
        values: of each rollout, in the unit of the reward.
        mean: mu, in the same unit.
        deviation: sigma, at least 0, in the same unit.
        eps: added to the deviation, above 0.
    """
    return (values - mean) / (deviation + eps)


def shaped_contributions(
    contributions: Float[Tensor, " rollouts"], mean: float, deviation: float, alpha: float = 1.0, eps: float = 1e-6
) -> Float[Tensor, " rollouts"]:
    """A bounded reward for an agent's contribution to the team (CCPO, eq. 4).

        r = tanh(alpha (Delta - mu) / (sigma + eps))

    A contribution of 0 has reward 0 only if mu is 0. Rewards are centred again within a prompt (eq. 5).

    Args:
        contributions: Delta of each rollout, R minus R without the agent, in [-1, 1].
        mean, deviation, eps: as in `standardised`, of the contributions.
        alpha: sensitivity, above 0.

    Returns:
        In (-1, 1).
    """
    return torch.tanh(alpha * standardised(contributions, mean, deviation, eps))


def trust(mean: float, deviation: float, eta: float = 1.0, eps: float = 1e-6) -> float:
    """The gate of the last speaker's reliance on the earlier speakers, from their contributions so far (CCPO, Appendix
    B.2).

        g = sigmoid(clip(eta mu / (sigma + eps), -20, 20))

    The clip is from the public code; without it the gate would round to 0 or 1.

    Args:
        mean, deviation: running moments of the contributions.
        eta: sharpness, at least 0; with 0 the gate is always 1/2.
        eps: added to the deviation, above 0.

    Returns:
        In (0, 1).
    """
    argument = max(-20.0, min(20.0, eta * mean / (deviation + eps)))
    return 1 / (1 + math.exp(-argument))


def fused_scores(
    joint: Float[Tensor, " rollouts"], alone: Float[Tensor, " rollouts"], gate: float
) -> Float[Tensor, " rollouts"]:
    """The last speaker's reward: its outcomes with the team and alone, weighted by `trust` (CCPO, Appendix B.2).

        r = g z_joint + (1 - g) z_alone

    There is no tanh. The outcome alone does not depend on the trained reply, so the second term is noise for it,
    unless replies of the solver alone are trained on as well.

    Args:
        joint: z of the team's outcome, of each rollout.
        alone: z of the paired outcome without the others.
        gate: g, in (0, 1).
    """
    return gate * joint + (1 - gate) * alone


def allocated_advantages(
    outcomes: Float[Tensor, " rollouts"],
    contributions: Float[Tensor, "rollouts agents"],
    groups: Int[Tensor, " rollouts"],
    eps: float = 1e-6,
) -> Float[Tensor, "rollouts agents"]:
    """The team's advantage, allocated by positive contributions (CCPO, Appendix B.3, the alternative).

        A[i] = w[i] A_joint,   w[i] = max(0, Delta[i]) / (sum_k max(0, Delta[k]) + eps)

    where A_joint is the advantage of the outcome within the prompt (eq. 5). Failures are hardly ever punished: if the
    outcome is low, contributions are rarely positive.

    Args:
        outcomes: of each rollout.
        contributions: of each agent in it.
        groups: the prompt of each rollout: any integers.
        eps: added to the sum and to the deviation, above 0.
    """
    positive = contributions.clamp(min=0)
    weights = positive / (positive.sum(dim=1, keepdim=True) + eps)
    return weights * group_advantages(outcomes, groups, "group", eps)[:, None]


def bonus_rewards(
    outcomes: Float[Tensor, " rollouts"],
    alone: Float[Tensor, " rollouts"],
    groups: Int[Tensor, " rollouts"],
    weight: float = 0.2,
    events: bool = True,
) -> Float[Tensor, " rollouts"]:
    """The shared outcome plus a small bonus for help (the public code of CCPO since June 2026; not in the paper).

        r = s + weight * (helped - hurt),   s = 2 R - 1
        helped: s > 0 and b < 0;   hurt: s < 0 and b > 0;   b = the prompt's mean of s without the agent

    Without `events` the bonus is weight * (s - b) / 2. The public code has only outcomes of 0 and 1.

    Args:
        outcomes: of each rollout, in [0, 1].
        alone: of each rollout without the agent, in [0, 1].
        groups: the prompt of each rollout: any integers.
        weight: of the bonus, at least 0.
        events: whether the bonus counts only help and hurt, or the difference.
    """
    signed, without = 2 * outcomes - 1, 2 * alone - 1
    baseline = without - full_mean(without, groups)
    helped, hurt = (signed > 0) & (baseline < 0), (signed < 0) & (baseline > 0)
    bonus = helped.to(signed) - hurt.to(signed) if events else (signed - baseline) / 2
    return signed + weight * bonus


def rated_rewards(
    outcomes: Shaped[Tensor, " rollouts"],
    shares: Float[Tensor, "rollouts raters roles"],
    groups: Int[Tensor, " rollouts"],
    self_weight: float = 0.3,
    credit_weight: float = 0.2,
    blame_weight: float = 0.2,
) -> Float[Tensor, "rollouts roles"]:
    """The team's outcome, shifted by the share in it that a role's ratings give it (SEPO, the public code of CCPO).

        s[i] = self_weight S[i, i] + (1 - self_weight) mean_{j != i} S[j, i],    w[i] = s[i] / sum_k s[k]
        r[i] = 2 R - 1 + c (w[i] - mean w[i]),    c = credit_weight if R > 1/2, else -blame_weight

    with the mean over the group. The public code has two roles and outcomes of 0 and 1.

    Args:
        outcomes: R, in [0, 1].
        shares: S, of each role in the result, by each role, at least 0; both in the same order, two or more.
        groups: the prompt of each rollout: any integers.
        self_weight: of a role's own rating, in [0, 1].
        credit_weight, blame_weight: at least 0.

    Raises:
        ValueError: an argument is out of range, or as `full_mean`.
    """
    finite_number("self_weight", self_weight, 0, most=1)
    finite_number("credit_weight", credit_weight, 0)
    finite_number("blame_weight", blame_weight, 0)
    require((outcomes >= 0) & (outcomes <= 1), outcomes, "outcomes must be in [0, 1]", "scale them")
    shares_of_self = shares.double().diagonal(dim1=1, dim2=2)
    peers = (shares.double().sum(dim=1) - shares_of_self) / (shares.shape[1] - 1)
    mixed = self_weight * shares_of_self + (1 - self_weight) * peers
    relative = mixed / mixed.sum(dim=1, keepdim=True).clamp(min=1e-6)
    shifts = torch.stack([full_mean(column, groups) for column in relative.T.contiguous()], dim=1)
    base = (2 * outcomes.double() - 1)[:, None]
    return base + torch.where(base > 0, credit_weight, -blame_weight) * shifts
