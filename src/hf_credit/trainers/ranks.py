"""Keeping the processes of a run in step while their episodes differ in length."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.nn.parallel import DistributedDataParallel

from hf_credit.rollouts import GenerateFn, Generation, Row, SeededGenerateFn


def shards_weights(accelerator: Accelerator) -> bool:
    """Whether no process holds all weights of the policy: FSDP, or the third stage of DeepSpeed's ZeRO."""
    deepspeed = accelerator.state.deepspeed_plugin
    fsdp = getattr(accelerator.state, "fsdp_plugin", None)
    return fsdp is not None or (deepspeed is not None and deepspeed.zero_stage == 3)


@contextmanager
def accumulating(model: Any, accelerator: Accelerator) -> Iterator[None]:
    """A backward pass within adds to the gradient and leaves the exchange between processes to the last of its step.

    Args:
        model: as `accelerator` prepared it.
        accelerator: of the run.
    """
    state = accelerator.gradient_state
    before = state.sync_gradients
    with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
        state._set_sync_gradients(False)
        try:
            yield
        finally:
            state._set_sync_gradients(before)


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

    def even_out(self, rows: list[Row], together: int) -> list[Row]:
        """The rows of this process, once those of all are shared out so that each reads about as many tokens.

        Episodes differ in length, and processes wait for the one with most to read. A gradient is a sum over the rows
        of all, so it does not depend on who has which. Called on every process at the same time.

        Args:
            rows: of this process, perhaps none.
            together: the most rows of a forward pass. Where it reads a prompt once for all rows that begin with it,
                so many of them move together if the prompt is longer than what follows; 1 moves rows one by one.
        """
        if self.accelerator.num_processes == 1:
            return rows
        units: list[list[int]] = []
        open_units: dict[tuple[str, Sequence[int]], list[int]] = {}
        for place, row in enumerate(rows):
            known = open_units.get((row.role, row.prompt_ids), [])
            if 0 < len(known) < together and len(row.prompt_ids) > len(row.completion_ids):
                known.append(place)
            else:
                units.append([place])
                open_units[row.role, row.prompt_ids] = units[-1]
        costs = [
            len(rows[unit[0]].prompt_ids) + sum(len(rows[place].completion_ids) for place in unit) for unit in units
        ]
        owners, me = evened(self.gather([costs])), self.accelerator.process_index
        if all(owner == process for process, own in enumerate(owners) for owner in own):
            return rows
        leaving = {
            place: owner for unit, owner in zip(units, owners[me], strict=True) for place in unit if owner != me
        }
        moved = self.gather([(owner, rows[place]) for place, owner in leaving.items()])
        stays = [row for place, row in enumerate(rows) if place not in leaving]
        return stays + [row for owner, row in moved if owner == me]


def evened(costs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Which process is to do each unit of work, with few moves, so that all have about as much.

    Whoever has most gives whoever has least the unit that brings the two nearest, until none brings them nearer.

    Args:
        costs: of the units of each process.

    Returns:
        The new owner of each, laid out as the costs are.
    """
    held = [[(cost, process, unit) for unit, cost in enumerate(own)] for process, own in enumerate(costs)]
    loads = [sum(own) for own in costs]
    while True:
        most, least = loads.index(max(loads)), loads.index(min(loads))
        gap = loads[most] - loads[least]
        nearer = [one for one in held[most] if 0 < one[0] < gap]
        if not nearer:
            break
        one = min(nearer, key=lambda unit: abs(gap - 2 * unit[0]))
        held[most].remove(one)
        held[least].append(one)
        loads[most] -= one[0]
        loads[least] += one[0]
    owners = [[process] * len(own) for process, own in enumerate(costs)]
    for owner, own in enumerate(held):
        for _, process, unit in own:
            owners[process][unit] = owner
    return owners
