"""Projection of a policy's next-token distribution into a trust region (paper CVT-RL, eqs. 8 and 9).

It projects only the distribution over the most probable tokens of the old policy, given that one of them is drawn. The
rest of the vocabulary keeps its old probabilities, so the divergence of the whole is alpha times that of the top.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hf_credit.credit.inputs import require
from hf_credit.credit.shapes import Float, Int

_NEWTON_STEPS = 30
_BISECTIONS = 60
_TOLERANCE = 1e-9
_AT_ONCE = 2**15  # numbers of which several arrays fit into a CPU's cache


def top_tokens(
    logprobs: Float[Tensor, "tokens vocabulary"], most: int
) -> tuple[Int[Tensor, "tokens top"], Float[Tensor, "tokens top"], Float[Tensor, " tokens"]]:
    """The most probable tokens of the old policy, their log-probabilities given that one of them is drawn, and their
    mass alpha.

    Args:
        logprobs: of the old policy, in nats, over the whole vocabulary.
        most: M, at most the size of the vocabulary; 256 in the paper, and 1,024 if alpha is below 0.98.

    Raises:
        ValueError: there are fewer tokens than `most`.
    """
    if not 1 <= most <= logprobs.shape[-1]:
        raise ValueError(f"M must be from 1 to the vocabulary's {logprobs.shape[-1]} tokens, got {most}; change it.")
    best, ids = logprobs.topk(most, dim=-1)
    mass = best.double().logsumexp(-1)
    return ids, (best - mass[:, None]).to(logprobs.dtype), mass.exp().to(logprobs.dtype)


def projected_logprobs(
    logprobs: Float[Tensor, "tokens top"],
    old_logprobs: Float[Tensor, "tokens top"],
    radius: Float[Tensor, " tokens"] | float,
) -> Float[Tensor, "tokens top"]:
    """The distribution nearest to the new one within a radius around the old one, in log-probabilities (paper CVT-RL,
    eq. 8).

        argmin_q || log q - z ||^2,    KL(p || q) <= radius

    With y = log q the problem is convex. Its solution is z if z is inside, and otherwise

        y = c - W(kappa e^c / 2),    c = z + nu p / 2

    with Lambert's W and the multipliers nu >= 0 of the divergence and kappa >= 0 of sum e^y = 1, found by Newton's
    method, or by bisection if that does not converge. Gradients flow through it to `logprobs`, by the implicit
    function theorem.

    In the paper z are the logits, whose constant is arbitrary: the projection would then also change distributions
    inside the region. Here z is normalised.

    Args:
        logprobs: z, of the new policy given that one of these tokens is drawn: normalised, in nats.
        old_logprobs: log p, of the old policy, likewise; finite.
        radius: delta / alpha of each token, above 0: the divergence of the whole distribution is then at most delta.

    Returns:
        y, normalised, in the dtype of `logprobs`.

    Raises:
        ValueError: a radius is not above 0, or a log-probability is not finite.
    """
    radii = torch.as_tensor(radius, dtype=torch.float64, device=logprobs.device).expand(len(logprobs))
    require(radii > 0, radii, "the radius must be above 0", "the paper's delta is 0.025")
    require(logprobs.isfinite(), logprobs, "logprobs must be finite", "take fewer tokens")
    require(old_logprobs.isfinite(), old_logprobs, "old_logprobs must be finite", "take fewer tokens")
    outside = divergence(old_logprobs.detach(), logprobs.detach()) > radii
    if not bool(outside.any()):
        return logprobs
    rows = outside.nonzero().squeeze(1)
    outer = logprobs[rows].double(), old_logprobs[rows].detach().double(), radii[rows]
    solved: Tensor = _Projection.apply(*outer)  # type: ignore[no-untyped-call]
    return logprobs.index_copy(0, rows, solved.to(logprobs.dtype))


def divergence(
    old_logprobs: Float[Tensor, "tokens top"], logprobs: Float[Tensor, "tokens top"]
) -> Float[Tensor, " tokens"]:
    """KL(p || q) of each token in nats, computed in double precision.

    Args:
        old_logprobs: log p.
        logprobs: log q.
    """
    old = old_logprobs.double()
    return (old.exp() * (old - logprobs.double())).sum(-1)


class _Projection(torch.autograd.Function):
    """The solution for tokens outside their region, in double precision."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, log_p: Tensor, radii: Tensor) -> Tensor:
        p = log_p.exp()
        size = len(z) if z.is_cuda else max(1, _AT_ONCE // z.shape[1])
        pieces = zip(*(torch.split(one, size) for one in (z, p, log_p, radii)), strict=True)
        y, kappa = map(torch.cat, zip(*(_solved(*piece) for piece in pieces), strict=True))
        ctx.save_for_backward(y, p, kappa)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        y, p, kappa = ctx.saved_tensors
        (gradient,) = gradients
        q = y.exp()
        scale = 1 / (2 + kappa[:, None] * q)
        # dy = 2 (D - D B (B' D B)^-1 B' D) dz with D = diag(scale) and B = [p, -q], a symmetric matrix.
        first, second = p * scale, -q * scale
        ratios = _solve(
            (p * first).sum(1),
            (p * second).sum(1),
            -(q * second).sum(1),
            (first * gradient).sum(1),
            (second * gradient).sum(1),
        )
        back = 2 * (scale * gradient - ratios[0][:, None] * first - ratios[1][:, None] * second)
        return back, None, None


def _solved(z: Tensor, p: Tensor, log_p: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """y and kappa of each token."""
    y, kappa, converged = _newton(z, p, log_p, radii)
    if not bool(converged.all()):
        rest = (~converged).nonzero().squeeze(1)
        y[rest], kappa[rest] = _bisected(z[rest], p[rest], log_p[rest], radii[rest])
    return y, kappa


def _newton(z: Tensor, p: Tensor, log_p: Tensor, radii: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Newton's method on the optimality conditions: y, kappa, and whether it converged, of all tokens at once.

    2 (y - z) - nu p + kappa e^y = 0,    sum e^y = 1,    sum p (log p - y) = radius
    """
    entropy = _dot(p, log_p)
    share = (radii / (entropy - _dot(p, z))).sqrt()[:, None]  # where a quadratic divergence would meet the radius
    y = torch.log_softmax(share * z + (1 - share) * log_p, dim=1)
    q, ahead = y.exp(), 2 * (y - z)
    # The multipliers with the smallest residual of the first condition.
    nu, kappa = _solve(_dot(p, p), -_dot(p, q), _dot(q, q), _dot(p, ahead), -_dot(q, ahead))
    converged = torch.zeros_like(radii, dtype=torch.bool)
    for _ in range(_NEWTON_STEPS):
        residual = (y - z).mul_(2).addcmul_(p, -nu[:, None]).addcmul_(q, kappa[:, None])
        mass, distance = q.sum(1) - 1, entropy - _dot(p, y) - radii
        converged = (_largest(residual) < _TOLERANCE) & (mass.abs() < _TOLERANCE) & (distance.abs() < _TOLERANCE)
        if bool(converged.all()):
            break
        scale = (q * kappa[:, None]).add_(2).reciprocal_()
        first, second = p * scale, q * scale
        # With y' = first nu' - second kappa' - scale residual the two sums must satisfy their conditions.
        d_nu, minus_d_kappa = _solve(
            _dot(first, p),
            _dot(first, q),
            _dot(second, q),
            distance + _dot(first, residual),
            _dot(second, residual) - mass,
        )
        move = residual.mul_(scale).neg_().addcmul_(first, d_nu[:, None]).addcmul_(second, minus_d_kappa[:, None])
        # Log-probabilities move by at most 2, so that e^y stays in range.
        length = (2 / _largest(move)).clamp(max=1)
        y = move.mul_(length[:, None]).add_(y)
        q = y.exp()
        nu, kappa = nu + length * d_nu, kappa - length * minus_d_kappa
    return y, kappa, converged & (nu >= 0) & (kappa >= -_TOLERANCE) & y.isfinite().all(1)


def _bisected(z: Tensor, p: Tensor, log_p: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """Bisection on nu, with a normalisation for each nu: slow, but always converges."""

    def at(nu: Tensor) -> tuple[Tensor, Tensor]:
        return _normalised(z + nu[:, None] * p / 2)

    low, high = torch.zeros_like(radii), torch.ones_like(radii)
    for _ in range(_BISECTIONS):
        far = divergence(log_p, at(high)[0]) > radii
        if not bool(far.any()):
            break
        low, high = torch.where(far, high, low), torch.where(far, 2 * high, high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        far = divergence(log_p, at(middle)[0]) > radii
        low, high = torch.where(far, middle, low), torch.where(far, high, middle)
    return at(high)


def _normalised(c: Tensor) -> tuple[Tensor, Tensor]:
    """The y with y + kappa e^y / 2 = c and the kappa at which sum e^y = 1, by Newton's method on log kappa in a
    bracket.
    """
    most = 2 * c.shape[1] * (c.amax(1) + math.log(c.shape[1])).clamp(min=1)  # at which every e^y is below 1 / M
    low, high = torch.full_like(most, -80.0), most.log()
    log_kappa = high
    for _ in range(2 * _BISECTIONS):
        kappa = log_kappa.exp()
        y = _lambert(c, kappa)
        excess, weighted = y.logsumexp(1), kappa[:, None] * y.exp()
        if bool((excess.abs() < 1e-12).all()):
            break
        slope = -(torch.softmax(y, 1) * weighted / (2 + weighted)).sum(1)
        low, high = torch.where(excess > 0, log_kappa, low), torch.where(excess > 0, high, log_kappa)
        step = log_kappa - excess / slope
        log_kappa = torch.where((step > low) & (step < high), step, (low + high) / 2)
    return _lambert(c, log_kappa.exp()), log_kappa.exp()


def _lambert(c: Tensor, kappa: Tensor) -> Tensor:
    """y = c - W(kappa e^c / 2), which solves y + kappa e^y / 2 = c, for kappa >= 0."""
    half = (kappa / 2)[:, None]
    log_half = half.clamp(min=1e-300).log()
    large = log_half + c  # the logarithm of W's argument
    w = torch.where(large > 1, large - large.clamp(min=1.0).log(), torch.nn.functional.softplus(large))
    w = w.clamp(min=1e-300)
    for _ in range(6):  # Newton on w + log w = large
        w = (w * (1 + large - w.log()) / (1 + w)).clamp(min=1e-300)
    return torch.where(half > 0, c - w, c)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """The inner product of each row."""
    return torch.linalg.vecdot(one, other)  # type: ignore[no-any-return]


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value of each row."""
    return torch.linalg.vector_norm(values, math.inf, dim=1)  # type: ignore[no-any-return]


def _solve(a: Tensor, b: Tensor, d: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """x of [[a, b], [b, d]] x = [first, second], of each token."""
    determinant = a * d - b * b
    return (d * first - b * second) / determinant, (a * second - b * first) / determinant
