"""Sampling from a transformers model without a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_credit.policies.prefix_cache import PrefixCache
from hf_credit.rollouts import GenerateFn, Generation


def sampler(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_new_tokens: int = 256,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
) -> GenerateFn:
    """A `GenerateFn` over `model.generate`, drawing from torch's random stream.

    Args:
        model: a causal language model, used in evaluation mode.
        tokenizer: for the padding and end-of-text tokens.
        max_new_tokens: the longest reply in tokens.
        temperature: of the sampling; 0 takes the most probable token always.
        top_p: nucleus of the sampling, 1 for all.
        top_k: how many of the most probable tokens to sample from, 0 for all.

    Raises:
        ValueError: a sampling parameter is out of range.
    """
    if max_new_tokens < 1 or temperature < 0 or not 0 < top_p <= 1 or top_k < 0:
        raise ValueError(
            "sampling needs max_new_tokens >= 1, temperature >= 0, 0 < top_p <= 1 and top_k >= 0, got "
            f"{max_new_tokens}, {temperature}, {top_p} and {top_k}; correct the one that is out of range."
        )
    declared = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [declared])} - {None}
    draw = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": top_k}
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        eos_token_id=sorted(ends),
        pad_token_id=tokenizer.pad_token_id,
        repetition_penalty=1.0,  # a penalty among the model's own defaults would bend the distribution
        disable_compile=True,
        return_dict_in_generate=True,
        **(draw if temperature > 0 else {"do_sample": False}),
    )

    memory = PrefixCache(model, tokenizer.pad_token_id)

    def generate(contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        model.eval()
        with torch.inference_mode():
            inputs = memory.inputs(contexts)
            output = cast(Any, model).generate(**inputs, generation_config=config)
            width = inputs["input_ids"].shape[1]
            replies = [_until_end(reply, ends) for reply in output.sequences[:, width:].tolist()]
            memory.keep(contexts, inputs["attention_mask"], replies, output.past_key_values)
        return [Generation(ids=reply) for reply in replies]

    return generate


def _until_end(ids: list[int], ends: set[int]) -> list[int]:
    """The reply up to its first end token, that one included."""
    for position, token in enumerate(ids):
        if token in ends:
            return ids[: position + 1]
    return ids
