"""One update of a real trainer; writes its gradient and metrics. Run by tests, directly or by torchrun."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from small_runs import SUDOKU, let_shard
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make
from hf_credit.collectors import RolloutBatch
from hf_credit.environments import Transition
from hf_credit.environments.sudoku import Sudoku, SudokuState


def whole(value: torch.Tensor) -> torch.Tensor:
    """The tensor that a sharded one is part of."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def held(parameter: torch.Tensor) -> int:
    """How many numbers of a parameter are in this process."""
    if isinstance(parameter, DTensor):
        return parameter.to_local().numel()
    return getattr(parameter, "ds_tensor", parameter).numel()  # DeepSpeed's part, where it cut the parameter up


class KeepGradient(TrainerCallback):
    """Copies the gradient as the optimizer would see it."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        # Adapters start with zero matrices, whose partners have a zero gradient: keep those too.
        self.gradients.append(
            {
                name.removeprefix("module."): whole(parameter.grad).clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        )


def counting_moves(trainer: Any) -> list[int]:
    """How many rows of others this process has, of each update."""
    even_out, moved = trainer.ranks.even_out, []

    def counted(rows: list[Any], together: int) -> list[Any]:
        shared = even_out(rows, together)
        moved.append(len([row for row in shared if row not in rows]))
        return shared

    trainer.ranks.even_out = counted
    return moved


def silence(trainer: Any, silenced: Sequence[Sequence[int]]) -> None:
    """Some processes credit every decision of an update with 0."""
    credit = trainer.credit

    def zeros(collected: Any) -> Any:
        found = credit(collected)
        silent = trainer.accelerator.process_index in silenced[trainer.state.global_step]
        return dict.fromkeys(found, 0.0) if silent else found

    trainer.credit = zeros


class Pictured(Sudoku):
    """Any reply makes the first legal move."""

    def step(self, state: SudokuState, action: str) -> Transition[SudokuState]:
        return super().step(state, next(iter(self.legal_actions(state)), ""))


def by_context(collected: RolloutBatch) -> dict[str, float]:
    """A credit of each decision that follows from its tokens."""
    decisions = [decision for episode in collected.episodes for decision in episode.decisions]
    return {one.id: sum(one.context_ids) % 7 - 2.5 for one in decisions}


def settings(output: Path, **changed: Any) -> VerifiableProcessConfig:
    """Eight greedy episodes an update, so that every layout of them sees the same replies."""
    values: dict[str, Any] = {
        **SUDOKU,
        "output_dir": str(output),
        "max_steps": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 1,
        "max_grad_norm": 1e9,
    }
    return VerifiableProcessConfig(**{**values, **changed})


def one_update(
    policy: Path,
    output: Path,
    trainer_kwargs: dict[str, Any] | None = None,
    on_built: Callable[[Any], None] | None = None,
    resume_from: Path | None = None,
    uneven: bool = False,
    plays: int = 1,
    silenced: Sequence[Sequence[int]] = (),
    pictured: bool = False,
    **changed: Any,
) -> Any:
    """Trains on 4x4 Sudoku; the trainer, with the gradients of its updates in `trainer.kept`.

    Where it is `uneven`, the first half of the episodes is longer than the second. With several `plays` the rows of an
    update repeat tasks so often. The processes that are `silenced` in an update credit every decision with 0.
    Where the boards are `pictured`, any reply is a legal move with a credit of its own.
    """
    keep = KeepGradient()
    world = functools.partial(Pictured, notation="picture") if pictured else functools.partial(make, "sudoku")
    environment = world(size=4, blanks=4)
    kwargs = {"callbacks": [keep], **(trainer_kwargs or {})}
    if uneven:
        easier = [world(size=4, blanks=4 - place // 2) for place in range(8)]
        boards = [one.sample_task(place) for place, one in enumerate(easier)]
        kwargs["train_dataset"] = Dataset.from_list([{**board, "seed": seed} for seed, board in enumerate(boards)])
        changed["shuffle_dataset"] = False
    args = settings(output, **changed)
    if plays > 1:
        boards = [environment.sample_task(place) for place in range(16)]
        tasks = [{**board, "seed": seed} for seed, board in enumerate(boards) for _ in range(plays)]
        kwargs["train_dataset"] = Dataset.from_list(tasks)
        args.shuffle_dataset = False
    let_shard()
    trainer = VerifiableProcessTrainer(str(policy), environment, args, **kwargs)
    if on_built is not None:
        on_built(trainer)
    trainer.moved = counting_moves(trainer)
    if pictured:
        trainer.credit = by_context
    if silenced:
        silence(trainer, silenced)
    trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
    trainer.kept = keep.gradients
    return trainer


if __name__ == "__main__":
    policy, output, changed = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    evaluated = changed.pop("evaluated", 0)  # task rows
    trained = one_update(policy, output, **changed)
    metrics = trained.state.log_history[0]
    evaluation = trained.evaluate(trained.train_dataset.select(range(evaluated))) if evaluated else {}
    trained.save_model(str(output / "policy"))
    moved = sum(trained.ranks.gather(trained.moved))
    if trained.accelerator.is_main_process:
        torch.save(
            {
                "gradient": trained.kept[0],
                "metrics": metrics,
                "evaluation": evaluation,
                "skipped": [entry["passes/skipped"] for entry in trained.state.log_history if "reward" in entry],
                "last gradient": trained.kept[-1],
                "together": trained.ranks.together,
                "processes": trained.accelerator.num_processes,
                "moved": moved,
                "held": sum(map(held, trained.model_wrapped.parameters())),
            },
            output / "update.pt",
        )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end
