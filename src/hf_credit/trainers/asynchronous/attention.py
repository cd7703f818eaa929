"""Attention over packed trees by torch's own kernels."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.integrations.sdpa_attention import repeat_kv


def segment_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree_kv_index: Tensor,
    tree_cu_seqlens_q: Tensor,
    tree_cu_seqlens_k: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What `tree_attention` of TRL 1.16 computes, without its kernel: each segment attends to its path from the root.

        out[s] = softmax(scale q[s] k[path(s)]^T + mask) v[path(s)],   mask: causal, aligned to the path's end

    Args:
        module: the attention layer.
        query: of one packed row, of shape (1, heads, tokens, size).
        key, value: of shape (1, heads or a divisor of them, tokens, size).
        attention_mask: unused: the tree says who sees whom.
        tree_kv_index: the places of all paths' tokens in the row, one path after the other.
        tree_cu_seqlens_q: where segments begin and end in the row, one number more than there are segments.
        tree_cu_seqlens_k: where their paths begin and end in `tree_kv_index`.
        scaling: of the logits; 1 / sqrt(size) if `None`.
        sliding_window: how many tokens, itself included, a token sees; all if `None`.
        softcap: of logits, which torch's kernels do not know.

    Raises:
        ValueError: the model caps its attention logits.
    """
    if softcap:
        raise ValueError(
            f"attention over trees by torch's kernels knows no cap on logits, got softcap={softcap}; train a model "
            "without one, or on a GPU with TRL's kernel."
        )
    groups = getattr(module, "num_key_value_groups", 1)
    segments, paths = (pairwise(one.tolist()) for one in (tree_cu_seqlens_q, tree_cu_seqlens_k))
    found = []
    for (first, last), (begin, end) in zip(segments, paths, strict=True):
        path = tree_kv_index[begin:end]
        alone = len(path) == last - first  # it starts at the root: its path is itself
        keys, values = ((one[:, :, first:last] if alone else one.index_select(2, path)) for one in (key, value))
        mask = None
        if not alone or sliding_window:
            seen = torch.arange(len(path), device=query.device)
            at = seen[len(path) - (last - first) :, None]
            mask = seen <= at
            if sliding_window:
                mask &= seen > at - sliding_window
        found.append(
            F.scaled_dot_product_attention(
                query[:, :, first:last],
                repeat_kv(keys, groups),
                repeat_kv(values, groups),
                attn_mask=mask,
                scale=scaling,
                is_causal=mask is None,
            )
        )
    return torch.cat(found, dim=2).transpose(1, 2), None
