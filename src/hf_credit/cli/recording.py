"""What a run leaves in its folder while it trains, and what it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_credit.cli.progress import Progress, Task
from hf_credit.evaluation.runs import CONFIG_FILE, FACTS_FILE, LOG_FILE, read_log, versions, write_config
from hf_credit.evaluation.setup import GameSetup
from hf_credit.redaction import redacted
from hf_credit.trainers.resumption import CheckpointCallback

_SHOWN = ("reward", "success", "completion", "oracle/valid")


class RunRecorder(CheckpointCallback):
    """Writes the settings, the facts and the log of a run to its output folder, and the game's setup beside weights.

    Args:
        config: every setting, as plain values.
        facts: what else should be known of the run.
        setup: how the game is shown in this run.
    """

    def __init__(self, config: Mapping[str, Any], facts: Mapping[str, Any], setup: GameSetup) -> None:
        self.config = config
        self.facts = facts
        self.setup = setup

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        folder = _folder(args)
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder / CONFIG_FILE, self.config)
        (folder / FACTS_FILE).write_text(json.dumps({**redacted(self.facts), "versions": versions()}, indent=2) + "\n")
        # A new run starts a new log; one that is taken up again forgets what came after the checkpoint.
        kept = [entry for entry in read_log(folder / LOG_FILE) if entry["step"] <= state.global_step]
        (folder / LOG_FILE).write_text("".join(_line(entry) for entry in kept if state.global_step))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero:
            with (_folder(args) / LOG_FILE).open("a", encoding="utf-8") as log:
                log.write(_line({**(logs or {}), "step": state.global_step}))

    def on_checkpoint(self, folder: Path) -> None:
        self.setup.save(folder)


class ShowProgress(TrainerCallback):
    """One line of progress: the update, and a few of the latest numbers.

    Args:
        progress: where to show it.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: Task | None = None
        self.note = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self.task = self.progress.task("updates", state.max_steps)
            self.task.update(state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.note = note(logs or {}) or self.note

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.task is not None:
            self.task.update(state.global_step, self.note)


def note(logs: Mapping[str, Any]) -> str:
    """A few of the logged numbers, in a line."""
    return ", ".join(f"{name} {logs[name]:.3f}" for name in _SHOWN if isinstance(logs.get(name), int | float))


def hardware() -> str:
    """What the process computes on."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def _folder(args: TrainingArguments) -> Path:
    assert args.output_dir is not None  # transformers sets one where the user does not
    return Path(args.output_dir)


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, default=float) + "\n"
