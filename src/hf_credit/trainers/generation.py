"""Generation during training that reuses keys and values of earlier turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from transformers import GenerationConfig

from hf_credit.policies.generation import PrefixSampler, Replies
from hf_credit.rollouts import Generation


def generations(ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float | None]] | None) -> list[Generation]:
    """Joins replies and their log-probabilities, if the sampler reports any; an unknown one is NaN."""
    if logprobs is None:
        return [Generation(ids=reply) for reply in ids]
    known = [[math.nan if value is None else value for value in reply] for reply in logprobs]
    return [Generation(ids=reply, logprobs=values) for reply, values in zip(ids, known, strict=True)]


class ContinuingReplies(Replies):
    """A `GenerateFn` of the policy that reuses the keys and values of its last call.

    Args:
        open_policy: context that returns the model ready to generate, entered for each call.
        config: of the generation; `hf_credit.policies.generation.can_continue` must hold.
    """

    def __init__(self, open_policy: Callable[[], AbstractContextManager[Any]], config: GenerationConfig) -> None:
        self.open_policy = open_policy
        self.config = config
        self.sampler: PrefixSampler | None = None

    def mixed(self, *asked: Any, **named: Any) -> Sequence[Generation]:
        with self.open_policy() as model, torch.no_grad():
            if self.sampler is None or self.sampler.model is not model:
                self.sampler = PrefixSampler(model, self.config)
            return self.sampler.mixed(*asked, **named)

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """Drops all keys and values on exit, also on errors, to free their memory for training."""
        try:
            yield
        finally:
            self.sampler = None
