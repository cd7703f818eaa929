"""What `hf-credit train` shows while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_credit.cli.progress import Progress, Task

_SHOWN = ("reward", "success", "completion", "oracle/valid")


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
