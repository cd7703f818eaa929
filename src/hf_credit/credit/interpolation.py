"""Projection into a trust region by interpolation: the layer of TROLL (Becker et al., arXiv 2510.03817)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hf_credit.credit.shapes import Float
from hf_credit.credit.trust_region import divergence, moved_inside

_STEPS = 100
_TOLERANCE = 1e-12


def interpolated_logprobs(
    logprobs: Float[Tensor, "tokens top"],
    old_logprobs: Float[Tensor, "tokens top"],
    radius: Float[Tensor, " tokens"] | float,
) -> Float[Tensor, "tokens top"]:
    """The distribution nearest to the new one within a radius around the old one, in log-probabilities.

        argmin_q KL(q || pi),    KL(q || p) <= radius

    The solution is pi if pi is inside, and otherwise a geometric mean of both:

        log q = (log pi + eta log p) / (1 + eta) + constant

    with the eta > 0 at which the divergence equals the radius, found by Newton's method within a bracket. Gradients
    flow through it to `logprobs`, by the implicit function theorem. Both divergences are from the projected
    distribution; that of `projected_logprobs` is from the old one.

    Args:
        logprobs: log pi, of the new policy given that one of these tokens is drawn: normalised, in nats.
        old_logprobs: log p, of the old policy, likewise; finite.
        radius: delta / alpha of each token, above 0; alpha is the mass of these tokens, since the tail is unchanged.

    Returns:
        log q, normalised, in the dtype of `logprobs`.

    Raises:
        ValueError: a radius is not above 0, or a log-probability is not finite.
    """
    distance = divergence(logprobs.detach(), old_logprobs.detach())
    return moved_inside(logprobs, old_logprobs, radius, distance, _Interpolation)


class _Interpolation(torch.autograd.Function):
    """The solution for tokens outside their region, in double precision."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, log_p: Tensor, radii: Tensor) -> Tensor:
        y, share, centred, variance = _solved(z - log_p, log_p, radii)
        ctx.save_for_backward(y, share, centred, variance)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        y, share, centred, variance = ctx.saved_tensors
        (gradient,) = gradients
        q = y.exp()
        # With d = z - log p, c = d - E_q d:  dy = w (dd - E_q dd) + c dw,  dw = -w E_q[c dd] / E_q[c^2].
        along = (gradient * centred).sum(1, keepdim=True) / variance[:, None]
        return share[:, None] * (gradient - q * (gradient.sum(1, keepdim=True) + along * centred)), None, None


def _solved(steps: Tensor, log_p: Tensor, radii: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each token: log q, w = 1 / (1 + eta), the deviation of the steps from their mean, and their variance under
    q.

    q is proportional to p e^(w d) with the step d, so KL(q || p) = w E_q d - log E_p e^(w d), whose derivative by w
    is w times the variance of d under q: it increases.
    """
    low, high = torch.zeros_like(radii), torch.ones_like(radii)
    share = high
    for _ in range(_STEPS):
        tilted = log_p + share[:, None] * steps
        normaliser = tilted.logsumexp(1)
        y = tilted - normaliser[:, None]
        q = y.exp()
        mean = (q * steps).sum(1)
        centred = steps - mean[:, None]
        variance = (q * centred.square()).sum(1)
        excess = share * mean - normaliser - radii
        if bool(((excess.abs() <= _TOLERANCE) | (high - low <= _TOLERANCE * high)).all()):
            break
        low, high = torch.where(excess > 0, low, share), torch.where(excess > 0, share, high)
        step = share - excess / (share * variance)
        share = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
    return y, share, centred, variance
