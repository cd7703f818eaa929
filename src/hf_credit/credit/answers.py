"""Credit of turns from the log-probability of the right answer before each of them (IGPO, TRACE)."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_credit.credit.group_advantages import group_advantages
from hf_credit.credit.inputs import as_mask, result_dtype
from hf_credit.credit.leave_one_out import full_mean, group_scaled
from hf_credit.credit.returns import discounted_returns, value_differences
from hf_credit.credit.shapes import Bool, Float, Int, Real, Shaped
from hf_credit.validators import finite_number, whole_number


def information_gain_advantages(
    logprobs: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    gamma: float = 1.0,
    joint: bool = True,
    eps: float = 1e-6,
) -> Float[Tensor, "rollouts turns"]:
    """The gain in the probability of the right answer in each turn, normalised in the group (IGPO, arXiv:2510.14967).

        r[t] = p[t + 1] - p[t],    r of the last turn = R,    A[t] = sum_{u >= t} gamma^(u - t) z(r[u])

    where p[t] = exp(logprobs[t]) is the probability before turn t, the geometric mean over the answer's tokens.

    Args:
        logprobs: the mean log-probability of the answer's tokens before each turn, in nats, at most 0.
        outcomes: R of each rollout, finite.
        active: whether rollout i had a turn t; a rollout's active turns come first.
        groups: the prompt of each rollout: any integers.
        gamma: discount per turn, in [0, 1].
        joint: whether gains and outcomes of a group are normalised together, as in the paper, or apart.
        eps: added to standard deviations (n - 1), above 0.

    Raises:
        ValueError: `gamma` is out of range, or as `group_advantages`.
    """
    active = as_mask(active, "active")
    last = _last(active)
    gains = value_differences(logprobs.double().exp(), outcomes, active)
    rewards = torch.where(last, outcomes.double()[:, None], gains)
    members = 2 * torch.unique(groups, return_inverse=True)[1][:, None] + (last & (not joint))
    normalised = torch.zeros_like(rewards)
    normalised[active] = group_advantages(rewards[active], members[active], eps=eps)
    return discounted_returns(normalised, active, gamma).to(result_dtype(logprobs))


def log_ratio_advantages(
    logprobs: Shaped[Tensor, "rollouts turns"],
    outcomes: Shaped[Tensor, " rollouts"],
    active: Bool[Tensor, "rollouts turns"] | Real[Tensor, "rollouts turns"],
    groups: Int[Tensor, " rollouts"],
    turn_weight: float = 0.2,
    horizon: int = 3,
    gamma: float = 0.8,
    terminal: float = 2.0,
    gap: float = 0.1,
    eps: float = 1e-6,
) -> Float[Tensor, "rollouts turns"]:
    """The outcome's advantage, and how much the next turns close the gap to the answer (TRACE, arXiv:2607.13988).

        d[t] = gap - logprobs[t],    V[t] = log(d[0] / d[t]),    delta[t] = V[t + 1] - V[t]
        c[t] = sum_{j < K} gamma^j delta[t + j] / sum_{j < K} gamma^j,    A[t] = A_O + turn_weight (c[t] + f[t])

    with A_O = (R - mean) / (std + eps) of the group (std with n). The sums are over the n turns before the last, which
    has A_O alone; where they reach the last of these, f[t] = terminal gamma^(n - t) A_O, else 0.

    Args:
        logprobs, outcomes, active, groups: as in `information_gain_advantages`.
        turn_weight, terminal: at least 0.
        horizon: K, at least 1.
        gamma: in [0, 1].
        gap, eps: above 0.

    Raises:
        ValueError: an argument is out of range.
    """
    for name, value in (("turn_weight", turn_weight), ("terminal", terminal)):
        finite_number(name, value, 0)
    finite_number("gap", gap, above=0)
    finite_number("gamma", gamma, 0, most=1)
    whole_number("horizon", horizon, 1)
    active = as_mask(active, "active")
    before_last = active & ~_last(active)
    remaining = gap - torch.where(active, logprobs.double(), 0)
    values = (remaining[:, :1] / remaining).log()
    deltas = torch.where(before_last, value_differences(values, outcomes, active), 0)
    sums, weights = torch.zeros_like(deltas), torch.zeros_like(deltas)
    for ahead in range(min(horizon, deltas.shape[1])):
        kept = deltas.shape[1] - ahead
        sums[:, :kept] += gamma**ahead * deltas[:, ahead:]
        weights[:, :kept] += gamma**ahead * before_last[:, ahead:]
    of_outcomes = group_scaled(full_mean(outcomes.double(), groups), groups, eps)[:, None]
    left = before_last.flip(1).cumsum(1).flip(1)
    filled = torch.where(left <= horizon, terminal * gamma ** left.double() * of_outcomes, 0)
    of_turns = torch.where(before_last, sums / weights.clamp(min=1) + filled, 0)
    return torch.where(active, of_outcomes + turn_weight * of_turns, 0).to(result_dtype(logprobs))


def _last(active: Tensor) -> Tensor:
    """The mask of each rollout's last active turn."""
    return active & ~torch.cat([active[:, 1:], torch.zeros_like(active[:, :1])], dim=1)
