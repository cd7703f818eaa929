"""Importance ratios between the policy and the engine that sampled its tokens."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype, working_dtype
from hf_credit.validators import one_of

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


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
    tokens.

    Args:
        policy_logprobs: log-probabilities under the trained policy.
        sampling_logprobs: log-probabilities that the sampler reported; NaN where it reported none (the ratio is 1).
        mask: 1 (or true) on model tokens, 0 (or false) on context and padding (the ratio is 1).
        mode: `token_truncate`, `token_mask`, `sequence_truncate` or `sequence_mask`.
        clip_min: lower bound, or `None`.
        clip_max: upper bound, or `None`.

    Returns:
        Ratios in the dtype of `policy_logprobs`, torch's default for integers; computed in at least float32.

    Raises:
        ValueError: `mode` is unknown, or `mask` is not a mask.
    """
    level, _, constraint = one_of("mode", mode, MODES).partition("_")
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
