"""Updates of a real `AsyncCreditTrainer` whose method has critics, on rollouts that were played before.

python async_critics.py POLICY OUTPUT ROLLOUTS SETTINGS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from async_update import KeepGradients, Nowhere
from small_runs import ON_A_PROCESSOR
from transformers import AutoTokenizer, TrainerCallback

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, make, methods
from hf_credit.collectors import RolloutBatch
from hf_credit.rollouts import Chat, EnvironmentInteraction
from hf_credit.trainers.asynchronous.worker import Worker


@dataclass(frozen=True)
class Given:
    """Collects what was played before; the tasks are the numbers of batches."""

    batches: Sequence[RolloutBatch]
    gives = frozenset({"groups", "audits"})

    def __call__(self, rows: Any, context: Any, memory: Any = None) -> RolloutBatch:
        return self.batches[rows[0]["number"]]


class Unasked:
    """A sampler that nobody asks."""


class KeepCritics(TrainerCallback):
    """Copies the gradients of critics as their optimizers see them, and their weights after each update."""

    def __init__(self, trainer: Any) -> None:
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.critics = trainer.critics
        for critic in trainer.critics.values():
            critic.weights.optimizer.register_step_pre_hook(self._keep)
            critic.config = replace(critic.config, max_grad_norm=None)

    def _keep(self, optimizer: Any, *args: Any) -> None:
        own = next(one.weights for one in self.critics.values() if one.weights.optimizer is optimizer)
        self.gradients.append({name: one.grad.clone() for name, one in own.parameters.items()})


class Uneven(EnvironmentInteraction):
    """4x4 Sudoku, three turns, whose outcome depends on the digits filled in."""

    def __init__(self) -> None:
        super().__init__(make("sudoku", size=4, blanks=4), history="append", instructions=False, max_turns=3)

    def outcome(self, state: Any) -> float:
        return sum(place * ord(cell) for place, cell in enumerate(state.world.cells, state.turns)) % 5 / 4


def given(policy: Path, batches: Sequence[RolloutBatch], method: Any) -> Worker:
    """A worker that plays nothing: the collections are batches that were played before, in their order."""
    return Worker(
        Uneven(),
        replace(method, collector=Given(batches)),
        Chat(AutoTokenizer.from_pretrained(policy)),
        Unasked(),  # type: ignore[arg-type]
        [{"number": number} for number in range(len(batches))],
        tasks_per_collection=1,
        concurrent_collections=1,
        shuffle=False,
    )


def trained(
    policy: Path, output: Path, worker: Worker, resume: bool | Path = False, trainer_kwargs: Any = None, **changed: Any
) -> Any:
    """A trainer after updates, with gradients in `kept` and those of critics in `kept_critics`."""
    settings = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "max_steps": len(worker.tasks),
        "instances_per_update": 1,
        "token_budget": 4096,
        "max_completion_length": 12,
        "max_grad_norm": 1e9,
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 4,
        "shuffle_dataset": False,
        **changed,
    }
    kwargs, keep = dict(trainer_kwargs or {}), KeepGradients()
    trainer: Any = AsyncCreditTrainer(
        str(policy),
        worker.interaction,
        AsyncCreditConfig(**settings),
        method=worker.method,
        callbacks=[keep, *kwargs.pop("callbacks", ())],
        worker=worker,
        weight_transfer=Nowhere(),
        **kwargs,
    )
    critics = KeepCritics(trainer)
    trainer.kept, trainer.kept_critics = keep.kept, critics.gradients
    trainer.train(resume_from_checkpoint=resume)
    return trainer


if __name__ == "__main__":
    policy, output, batches = Path(sys.argv[1]), Path(sys.argv[2]), torch.load(sys.argv[3], weights_only=False)
    settings = json.loads(sys.argv[4])
    made = methods.make(settings.pop("method"), **settings.pop("method_options", {}))
    done = trained(policy, output, given(policy, batches, made), **settings)
    found = {
        "kept": done.kept,
        "kept_critics": done.kept_critics,
        "weights": {name: dict(one.weights.parameters) for name, one in done.critics.items()},
        "log": done.state.log_history,
        "processes": done.accelerator.num_processes,
    }
    torch.save(found, output / f"process-{done.accelerator.process_index}.pt")
    torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end
