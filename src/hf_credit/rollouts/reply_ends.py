"""End tokens of replies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase, ProcessorMixin

from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.templates import ChatTemplateError


def end_tokens(model: Any, tokenizer: PreTrainedTokenizerBase | ProcessorMixin) -> list[int]:
    """Returns the tokens that end a reply, sorted: the tokenizer's, those that end a turn in its chat template, and
    those of the model's generation settings."""
    settings = model.generation_config
    declared = None if settings is None else settings.eos_token_id
    try:
        return list(Chat(tokenizer, ends=declared).end_tokens)
    except ChatTemplateError:  # of a policy of tokens only
        inner: Any = getattr(tokenizer, "tokenizer", tokenizer)
        return sorted({inner.eos_token_id, *(declared if isinstance(declared, list) else [declared])} - {None})


def was_cut(reply: Sequence[int], end_tokens: Collection[int]) -> bool:
    """Returns whether a reply reached the length limit without an end token."""
    return not reply or reply[-1] not in end_tokens
