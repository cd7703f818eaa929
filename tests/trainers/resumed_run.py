"""A run that resumes from its last complete checkpoint and may be killed. Run by tests: forked, or by torchrun."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from huggingface_hub import constants
from small_runs import SAMPLED, SUDOKU, let_shard

from hf_credit import CreditConfig, CreditTrainer, VerifiableProcessConfig, VerifiableProcessTrainer, make, methods
from hf_credit.rollouts import EnvironmentInteraction

SAVED: dict[str, Any] = {
    "max_steps": 6,
    "warmup_steps": 0,
    "save_strategy": "steps",
    "save_steps": 1,
    "save_total_limit": 2,
}


def settings(output: Path, **changed: Any) -> VerifiableProcessConfig:
    """Six updates of eight sampled episodes, each followed by a checkpoint."""
    values: dict[str, Any] = {**SUDOKU, **SAMPLED, **SAVED, "output_dir": str(output)}
    return VerifiableProcessConfig(**{**values, **changed})


def build(
    policy: Path,
    output: Path,
    tasks: int | None = None,
    blanks: int = 4,
    trainer_kwargs: dict[str, Any] | None = None,
    method: str | None = None,
    **changed: Any,
) -> Any:
    """A trainer of 4x4 Sudoku, on `tasks` tasks or on as many as the run plays; a named method has a frozen copy."""
    rows = None if tasks is None else Dataset.from_list([{"seed": seed} for seed in range(tasks)])
    kwargs = {"train_dataset": rows, **(trainer_kwargs or {})}
    environment = make("sudoku", size=4, blanks=blanks)
    args = settings(output, **changed)
    let_shard()
    if method is not None:
        names = {one.name for one in dataclasses.fields(CreditConfig) if one.init}
        own = {name: value for name, value in {**SUDOKU, **SAMPLED, **SAVED, **changed}.items() if name in names}
        task = EnvironmentInteraction(environment, "current")
        kwargs["train_dataset"] = rows or task.tasks("train", 64)
        copied = dataclasses.replace(methods.make(method), refresh_frozen_every=1)
        return CreditTrainer(str(policy), task, CreditConfig(output_dir=str(output), **own), method=copied, **kwargs)
    return VerifiableProcessTrainer(str(policy), environment, args, **kwargs)


class Touches:
    """Lists whenever the process opens, makes, renames or removes something of a checkpoint; may die of one.

    Args:
        deadly: which of them, from 1, kills the process; none if `None`.
    """

    def __init__(self, deadly: int | None) -> None:
        self.seen: list[str] = []
        self.deadly = deadly
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
            return
        paths = [Path(os.fsdecode(path)) for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike)]
        # What is removed with its folder is known by its own name alone.
        if event == "os.remove" or any(part.startswith("checkpoint-") for path in paths for part in path.parts):
            self.seen.append(f"{event} {'/'.join(paths[0].parts[-2:])}")
            if len(self.seen) == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)


def run(policy: str, output: str, settings: dict[str, Any], deadly: int | None = None) -> None:
    """Trains to the end from wherever the run has got, and leaves the policy in `output/final`."""
    torch.set_num_threads(1)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    touches = Touches(None if restarted else deadly)
    place = settings.pop("resume", True)
    trainer = build(Path(policy), Path(output), **settings)
    trainer.train(resume_from_checkpoint=place)
    trainer.save_model(f"{output}/final")
    if trainer.accelerator.is_main_process:
        log = [[entry[name] for name in ("step", "loss", "grad_norm")] for entry in trainer.state.log_history[:-1]]
        how = {"processes": trainer.accelerator.num_processes, "kind": trainer.accelerator.distributed_type.value}
        found = {**how, "log": log, "touches": touches.seen}
        Path(output, "found.json").write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if "HF_ENDPOINT" in os.environ:  # read when huggingface_hub was imported, which may be long ago
        constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_XET = False, True
    run(**json.loads(sys.argv[1]))
