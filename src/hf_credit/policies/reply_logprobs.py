"""The log-probabilities of replies under a model, without a trainer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import PreTrainedModel

_LOGITS_AT_ONCE = 2**27
_TOKENS_AT_ONCE = 2**16


@torch.inference_mode()
def reply_logprobs(
    model: PreTrainedModel, asked: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
) -> list[tuple[float, ...]]:
    """log pi(y_t | x, y_<t) of each token of each reply, in nats.

    Args:
        model: a causal language model, used in evaluation mode.
        asked: each a context x of at least one token and a reply y to it, both in tokens.
        temperature: that logits are divided by, above 0.
    """
    was_training = model.training
    model.eval()
    found: list[tuple[float, ...]] = [()] * len(asked)
    most = max(1, min(_TOKENS_AT_ONCE, _LOGITS_AT_ONCE // model.config.get_text_config().vocab_size))
    order = sorted(range(len(asked)), key=lambda place: sum(map(len, asked[place])))
    while order:
        longest = sum(map(len, asked[order[-1]]))
        part, order = order[-max(most // longest, 1) :], order[: -max(most // longest, 1)]
        # What stands behind a reply cannot change what comes before it, so any token fills the gaps.
        ids = torch.zeros(len(part), longest, dtype=torch.long)
        for row, place in enumerate(part):
            ids[row, : sum(map(len, asked[place]))] = torch.tensor([*asked[place][0], *asked[place][1]])
        logits = cast(Any, model)(input_ids=ids.to(model.device), use_cache=False).logits
        lengths = [len(asked[place][1]) for place in part]
        rows = torch.repeat_interleave(torch.tensor(lengths))
        tokens = [len(asked[place][0]) + at for place, own in zip(part, lengths, strict=True) for at in range(own)]
        told = (logits[rows, torch.tensor(tokens, dtype=torch.long) - 1].double().cpu() / temperature).log_softmax(-1)
        drawn = torch.tensor([token for place in part for token in asked[place][1]], dtype=torch.long)
        values = iter(told.gather(-1, drawn[:, None]).squeeze(-1).tolist())
        for place, own in zip(part, lengths, strict=True):
            found[place] = tuple(itertools.islice(values, own))
    model.train(was_training)
    return found
