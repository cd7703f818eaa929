"""The clipped surrogate of a policy gradient, its importance ratios, and the divergence penalty next to it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype, working_dtype
from hf_credit.credit.shapes import Bool, Float, Real
from hf_credit.validators import one_of


def sampling_ratio(
    policy_logprobs: Real[Tensor, "rows tokens"] | Bool[Tensor, "rows tokens"],
    sampling_logprobs: Real[Tensor, "rows tokens"] | Bool[Tensor, "rows tokens"],
    mask: Bool[Tensor, "rows tokens"] | Real[Tensor, "rows tokens"],
    mode: str = "token_truncate",
    clip_min: float | None = None,
    clip_max: float | None = 3.0,
) -> Float[Tensor, "rows tokens_or_one"]:
    """The bounded importance ratio between the policy and the engine that sampled its tokens.

        ratio = exp(policy_logprobs - sampling_logprobs)

    per token, or per row as the product over the row's model tokens; either truncated to [clip_min, clip_max], or set
    to 0 outside it. The default is per token, since a row of a long episode multiplies the differences of thousands of
    tokens. Computed in at least float32.

    Args:
        policy_logprobs: log-probabilities under the trained policy.
        sampling_logprobs: log-probabilities that the sampler reported; NaN where it reported none (the ratio is 1).
        mask: 1 (or true) on model tokens, 0 (or false) on context and padding (the ratio is 1).
        mode: `token_truncate`, `token_mask`, `sequence_truncate` or `sequence_mask`.
        clip_min: lower bound, or `None`.
        clip_max: upper bound, or `None`.

    Raises:
        ValueError: `mode` is unknown, or `mask` is not a mask.
    """
    one_of("mode", mode, ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"))
    level, _, constraint = mode.partition("_")
    dtype = working_dtype(policy_logprobs)
    difference = torch.nan_to_num(policy_logprobs.to(dtype) - sampling_logprobs.to(dtype), nan=0.0)
    difference = torch.where(as_mask(mask), difference, 0)
    if level == "sequence":
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = difference.exp()
    low = -torch.inf if clip_min is None else clip_min
    high = torch.inf if clip_max is None else clip_max
    if constraint == "truncate":
        ratio = ratio.clamp(low, high)
    else:
        ratio = torch.where((ratio < low) | (ratio > high), 0.0, ratio)
    return ratio.to(result_dtype(policy_logprobs))


class TokenLosses(NamedTuple):
    """The surrogate of each token, and masks of the clipped tokens."""

    losses: Tensor  # of shape (rows, tokens); the loss is their mean over the tokens of `mask`
    # of the policy to the one that played, of shape (rows, tokens), or (rows, 1) at the level of sequences
    ratio: Tensor
    clipped_low: Tensor  # where the ratio is below its bound and the advantage negative, in the shape of `losses`
    clipped_high: Tensor  # where the ratio is above its bound and the advantage positive


def clipped_surrogate(
    logprobs: Float[Tensor, "rows tokens"],
    old_logprobs: Float[Tensor, "rows tokens"],
    advantages: Real[Tensor, "rows tokens"],
    mask: Bool[Tensor, "rows tokens"] | Real[Tensor, "rows tokens"],
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
    level: str = "token",
    loss_type: str = "dapo",
) -> TokenLosses:
    """The clipped surrogate of each token (PPO, arXiv 1707.06347, eq. 7; separate bounds as in DAPO, arXiv
    2503.14476).

        r[t] = exp(logprobs[t] - old_logprobs[t])
        dapo:   -min(min(r, delta) A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A)
        cispo:  -stop_gradient(min(r, epsilon_high)) A logprobs     (MiniMax-M1, arXiv 2506.13585, eqs. 4 and 5)

    At the level of sequences r is the geometric mean of the ratios of a row (GSPO, arXiv 2507.18071, eq. 7).

    Args:
        logprobs: of the tokens under the policy, in nats, with gradients.
        old_logprobs: under the policy that played.
        advantages: of each token.
        mask: 1 (or true) on tokens in the loss; the ratio of a sequence includes only these.
        epsilon_low, epsilon_high: the maximum distance of a ratio below and above 1, at least 0. With `cispo`,
            `epsilon_high` is the bound itself.
        delta: a second bound, for ratios of negative advantages, above 1 + `epsilon_high`; `None`: no bound.
        level: `"token"` or `"sequence"`.
        loss_type: `"dapo"` or `"cispo"`.

    Raises:
        ValueError: `level` or `loss_type` is unknown.
    """
    one_of("level", level, ("token", "sequence"))
    one_of("loss_type", loss_type, ("dapo", "cispo"))
    difference = logprobs - old_logprobs
    if level == "sequence":
        difference = (difference * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    ratio = difference.exp()
    if loss_type == "cispo":
        losses = -ratio.clamp(max=epsilon_high).detach() * advantages * logprobs
        high = (ratio > epsilon_high) & (advantages > 0)
        return TokenLosses(losses, ratio, torch.zeros_like(high), high)
    clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)
    bounded = ratio if delta is None else ratio.clamp(max=delta)
    losses = -torch.minimum(bounded * advantages, clipped * advantages)
    low = (bounded < 1 - epsilon_low) & (advantages < 0)
    high = (bounded > 1 + epsilon_high) & (advantages > 0)
    return TokenLosses(losses, ratio, low, high)


def reference_divergence(
    logprobs: Float[Tensor, "rows tokens"],
    reference_logprobs: Float[Tensor, "rows tokens"],
    ratio: Float[Tensor, "rows tokens_or_one"] | None = None,
) -> Float[Tensor, "rows tokens"]:
    """A non-negative estimate of KL(policy || reference) from the sampled tokens (GRPO, arXiv 2402.03300, eq. 4).

        k[t] = exp(d[t]) - d[t] - 1,   d = reference_logprobs - logprobs

    Args:
        logprobs: under the policy, in nats, with gradients.
        reference_logprobs: under the reference.
        ratio: of the policy to the one that played, which weights tokens of an older policy (DeepSeek-V3.2, arXiv
            2512.02556, eq. 7); no weights if `None`.
    """
    difference = reference_logprobs - logprobs
    divergence = difference.exp() - difference - 1
    return divergence if ratio is None else divergence * ratio


def next_entropy_coefficient(
    coefficient: float, entropy: float, target: float, step: float, low: float, high: float
) -> float:
    """The weight of the entropy bonus after an update: a step higher if the entropy is at most its target, else a step
    lower (Skywork-OR1, arXiv 2505.22312, section 3).

    Args:
        coefficient: the weight before the update.
        entropy: the mean over the tokens of the update, in nats.
        target: in nats.
        step: the change by one update, at least 0.
        low, high: the range of the weight.
    """
    return min(coefficient + step, high) if entropy <= target else max(coefficient - step, low)
