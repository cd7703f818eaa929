"""Replies of the policy in training, without reading again what the turn before has read."""

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
    """Replies with their log-probabilities, where the sampler reports any; one that it does not know is NaN."""
    if logprobs is None:
        return [Generation(ids=reply) for reply in ids]
    known = [[math.nan if value is None else value for value in reply] for reply in logprobs]
    return [Generation(ids=reply, logprobs=values) for reply, values in zip(ids, known, strict=True)]


class ContinuingReplies(Replies):
    """A `GenerateFn` over the policy, each of whose calls goes on from the last one.

    Args:
        open_policy: gives the model, ready to generate, for as long as one call lasts.
        config: of the generation, one for which `hf_credit.policies.generation.can_continue` holds.
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
        """Afterwards, and after an error, no keys and values are held, so that training has their memory."""
        try:
            yield
        finally:
            self.sampler = None
