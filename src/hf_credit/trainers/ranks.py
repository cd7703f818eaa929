"""Keeping the processes of a run in step while their episodes differ in length."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from hf_credit.rollouts import GenerateFn, Generation, SeededGenerateFn


def shards_weights(accelerator: Accelerator) -> bool:
    """Whether no process holds all weights of the policy: FSDP, or the third stage of DeepSpeed's ZeRO."""
    deepspeed = accelerator.state.deepspeed_plugin
    fsdp = getattr(accelerator.state, "fsdp_plugin", None)
    return fsdp is not None or (deepspeed is not None and deepspeed.zero_stage == 3)


class SynchronizedSampler:
    """A `GenerateFn` that every process calls equally often, with equally many contexts.

    Sharded parameters and a shared inference server both need all processes in every generation call, while some
    process always has longer episodes than the others. A process that is short of contexts fills up with an idle
    one, and `finish` keeps answering until every process is done.

    Args:
        generate: the sampler of this process.
        accelerator: knows the other processes.
        idle_context: what to ask for when there is nothing to ask.
        seeded: the sampler where each context comes with a seed, or `None` if it honours none.
    """

    def __init__(
        self,
        generate: GenerateFn,
        accelerator: Accelerator,
        idle_context: Sequence[int],
        seeded: SeededGenerateFn | None = None,
    ) -> None:
        self.generate = generate
        self.accelerator = accelerator
        self.idle_context = idle_context
        self.seeded = None if seeded is None else functools.partial(self._seeded, seeded)

    def __call__(self, contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        missing = self.all_max(len(contexts)) - len(contexts)
        return self.generate([*contexts, *[self.idle_context] * missing])[: len(contexts)]

    def _seeded(
        self, generate: SeededGenerateFn, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]
    ) -> Sequence[Generation]:
        missing = self.all_max(len(contexts)) - len(contexts)
        return generate([*contexts, *[self.idle_context] * missing], [*seeds, *[0] * missing])[: len(contexts)]

    def finish(self) -> None:
        """Waits, idly generating, for the processes whose episodes still go on."""
        while (missing := self.all_max(0)) > 0:
            self.generate([self.idle_context] * missing)

    def all_max(self, count: int) -> int:
        """The largest `count` of all processes."""
        if self.accelerator.num_processes == 1:
            return count
        counts = self.accelerator.gather(torch.tensor([count], device=self.accelerator.device))
        return int(counts.max())

    def gather(self, items: list[Any]) -> list[Any]:
        """The items of all processes, in the order of the processes."""
        return gather_object(items) if self.accelerator.num_processes > 1 else items

    def rank_offset(self, count: int) -> int:
        """How many items the processes before this one have, where this one has `count`."""
        return sum(self.gather([count])[: self.accelerator.process_index])
