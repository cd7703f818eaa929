"""The log-probabilities of replies under a model, without a trainer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from hf_credit.policies.generation import evaluating

_LOGITS_AT_ONCE = 2**27
_TOKENS_AT_ONCE = 2**16


@torch.inference_mode()
def reply_logprobs(
    model: PreTrainedModel, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
) -> list[tuple[float, ...]]:
    """log pi(y_t | x, y_<t) of each token of each reply, in nats.

    Args:
        model: a causal language model, used in evaluation mode.
        pairs: a context x of at least one token, and a reply y to it, in tokens.
        temperature: divides the logits, above 0.
    """
    found: list[tuple[float, ...]] = [()] * len(pairs)
    at_once = max(1, min(_TOKENS_AT_ONCE, _LOGITS_AT_ONCE // model.config.get_text_config().vocab_size))
    order = sorted(range(len(pairs)), key=lambda index: sum(map(len, pairs[index])))
    while order:
        longest = sum(map(len, pairs[order[-1]]))
        part, order = order[-max(at_once // longest, 1) :], order[: -max(at_once // longest, 1)]
        batch = [pairs[index] for index in part]
        # Attention is causal, so any token will do as padding on the right.
        ids = torch.zeros(len(part), longest, dtype=torch.long)
        for row, (context, reply) in enumerate(batch):
            ids[row, : len(context) + len(reply)] = torch.tensor([*context, *reply])
        with evaluating(model):
            logits = cast(Any, model)(input_ids=ids.to(model.device), use_cache=False).logits
        lengths = [len(reply) for _, reply in batch]
        rows = torch.repeat_interleave(torch.tensor(lengths))
        columns = [column for x, y in batch for column in range(len(x) - 1, len(x) + len(y) - 1)]
        logits = logits[rows, torch.tensor(columns, dtype=torch.long)].double().cpu() / temperature
        replies = torch.tensor([token for _, reply in batch for token in reply], dtype=torch.long)
        values = iter(logits.log_softmax(-1).gather(-1, replies[:, None]).squeeze(-1).tolist())
        for index, length in zip(part, lengths, strict=True):
            found[index] = tuple(itertools.islice(values, length))
    return found
