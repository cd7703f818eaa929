"""Synchronises the processes of a run, whose episodes differ in length."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from hf_credit.rollouts import Context, GenerateFn, Generation, Row, SeededGenerateFn


def shards_weights(accelerator: Accelerator) -> bool:
    """Whether the processes share the weights of the policy, by FSDP or by stage 3 of DeepSpeed's ZeRO."""
    deepspeed = accelerator.state.deepspeed_plugin
    fsdp = getattr(accelerator.state, "fsdp_plugin", None)
    return fsdp is not None or (deepspeed is not None and deepspeed.zero_stage == 3)


def keep_precision(accelerator: Accelerator) -> None:
    """Keeps accelerate's mixed precision of FSDP2 from rounding a model's outputs, which are log-probabilities."""
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is not None and plugin.fsdp_version == 2 and plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, output_dtype=None)


def reshard(model: nn.Module) -> None:
    """Gives up the whole weights that a forward pass without a backward pass leaves on each process under FSDP2."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def exchange_each_pass(model: Any) -> None:
    """Under FSDP2, has each backward pass add to the process's own share of the gradient, in the type of its weights.
    Otherwise all passes of an update but the last add to a whole gradient, in bfloat16, in which sums stagnate."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(True)


@contextmanager
def accumulating(model: Any, accelerator: Accelerator) -> Iterator[None]:
    """Context in which a backward pass of a prepared model accumulates the gradient without exchanging it."""
    state = accelerator.gradient_state
    before = state.sync_gradients
    with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
        state._set_sync_gradients(False)
        try:
            yield
        finally:
            state._set_sync_gradients(before)


def backward(loss: Tensor, accelerator: Accelerator) -> None:
    """The backward pass of a loss that is already divided by the tokens of an update."""
    deepspeed = accelerator.distributed_type == DistributedType.DEEPSPEED
    accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))


@functools.lru_cache(maxsize=1)
def patient(world: Any) -> Any:
    """The processes of the group `world`, as a group that waits for a month; first called where all are."""
    return dist.new_group(timeout=timedelta(days=30), backend="gloo")


def from_main(accelerator: Accelerator, ask: Callable[[], Any]) -> Any:
    """What `ask` returns on the main process, on every process; its error there is raised on every process.

    The others wait for longer than `ddp_timeout` if need be: a publication takes as long as the network does.
    """
    several = accelerator.num_processes > 1
    group = patient(dist.group.WORLD) if several else None  # made while all are here
    answer: Any = None
    failure: Exception | None = None
    if accelerator.is_main_process:
        try:
            answer = ask()
        except Exception as error:  # the other processes wait for an answer, whatever went wrong
            failure = error
    told = [answer, failure and (str(failure) or type(failure).__name__)]
    if several:
        dist.broadcast_object_list(told, group=group)
    answer, refusal = told
    if refusal is None:
        return answer
    raise failure or ValueError(refusal)


class Ranks:
    """The processes of a run, which exchange what each has."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def all_max(self, count: int) -> int:
        """The maximum of `count` over all processes."""
        if self.accelerator.num_processes == 1:
            return count
        counts = self.accelerator.gather(torch.tensor([count], device=self.accelerator.device))
        return int(counts.max())

    def gather(self, items: list[Any]) -> list[Any]:
        """Returns the items of all processes, in their order."""
        return gather_object(items) if self.accelerator.num_processes > 1 else items

    def rank_offset(self, count: int) -> int:
        """The number of items of the processes before this one, which has `count`."""
        return sum(self.gather([count])[: self.accelerator.process_index])

    def even_out(self, rows: list[Row], together: int) -> list[Row]:
        """Balances the rows of all processes, so that each reads about equally many tokens, and returns this one's.

        Processes wait for the one with the most tokens. The gradient is a sum over the rows of all processes, so it
        does not depend on which process has which row. Called on every process at the same time.

        Args:
            rows: of this process, perhaps none.
            together: maximum rows of a forward pass that computes a prompt once for all its rows. So many rows with
                the same prompt move together if the prompt is longer than their completions; 1 moves single rows.
        """
        if self.accelerator.num_processes == 1:
            return rows
        units: list[list[int]] = []  # indices of rows that move together
        open_units: dict[tuple[str, Sequence[int]], list[int]] = {}
        for index, row in enumerate(rows):
            unit = open_units.get((row.role, row.prompt_ids), [])
            if 0 < len(unit) < together and len(row.prompt_ids) > len(row.completion_ids):
                unit.append(index)
            else:
                units.append([index])
                open_units[row.role, row.prompt_ids] = units[-1]
        costs = [
            len(rows[unit[0]].prompt_ids) + sum(len(rows[index].completion_ids) for index in unit) for unit in units
        ]
        owners, rank = balanced(self.gather([costs])), self.accelerator.process_index
        if all(owner == process for process, of_process in enumerate(owners) for owner in of_process):
            return rows
        leaving = {
            index: owner for unit, owner in zip(units, owners[rank], strict=True) for index in unit if owner != rank
        }
        moved = self.gather([(owner, rows[index]) for index, owner in leaving.items()])
        staying = [row for index, row in enumerate(rows) if index not in leaving]
        return staying + [row for owner, row in moved if owner == rank]


class SynchronizedSampler(Ranks):
    """The `GenerateFn` of the processes of a run.

    Sharded weights and TRL's calls of vLLM need all processes in every generation call, with equally many contexts,
    while their episodes differ in length. A process with fewer contexts then adds copies of a real one, its own or
    another's, whose replies are as long as any; `finish` does so until every process is done.

    Args:
        generate: the sampler of this process.
        together: whether all processes must take part in every call.
        seeded: the sampler of contexts with seeds, without others; `None` if there is none.
    """

    def __init__(
        self, generate: GenerateFn, accelerator: Accelerator, together: bool, seeded: SeededGenerateFn | None = None
    ) -> None:
        super().__init__(accelerator)
        self.generate = generate
        self.together = together and accelerator.num_processes > 1
        self.seeded = seeded

    def __call__(self, contexts: Sequence[Context]) -> Sequence[Generation]:
        return self.generate([*contexts, *self._copies(contexts)])[: len(contexts)]

    def finish(self) -> None:
        """Takes part in the calls of other processes until their episodes have ended."""
        while copies := self._copies(()):
            self.generate(copies)

    def _copies(self, contexts: Sequence[Context]) -> list[Context]:
        """Copies of the shortest context of all processes, as many as this one lacks."""
        if not self.together:
            return []
        counts, shortest = zip(*self.gather([(len(contexts), min(contexts, key=len, default=()))]), strict=True)
        return [min(filter(None, shortest), key=len)] * (max(counts) - len(contexts)) if any(counts) else []


def balanced(costs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Assigns units of work to processes with few moves, so that their loads are about equal.

    The process with the largest load gives the one with the smallest the unit that brings their loads closest, until
    no unit brings them closer.

    Args:
        costs: of the units of each process.

    Returns:
        The new process of each unit, in the layout of the costs.
    """
    held = [[(cost, process, unit) for unit, cost in enumerate(units)] for process, units in enumerate(costs)]
    loads = [sum(units) for units in costs]
    while True:
        most, least = loads.index(max(loads)), loads.index(min(loads))
        gap = loads[most] - loads[least]
        movable = [unit for unit in held[most] if 0 < unit[0] < gap]
        if not movable:
            break
        best = min(movable, key=lambda unit: abs(gap - 2 * unit[0]))
        held[most].remove(best)
        held[least].append(best)
        loads[most] -= best[0]
        loads[least] += best[0]
    owners = [[process] * len(units) for process, units in enumerate(costs)]
    for owner, units in enumerate(held):
        for _, process, unit in units:
            owners[process][unit] = owner
    return owners
