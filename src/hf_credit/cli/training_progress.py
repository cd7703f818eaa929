"""The progress that `hf-credit train` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerState

from hf_credit.cli.progress import Progress, Task
from hf_credit.trainers.callbacks import PulseCallback, headlines


class ShowProgress(PulseCallback):
    """Shows the number of the update, a few of the latest metrics, and what a long update does."""

    def __init__(self, progress: Progress, name: str = "updates") -> None:
        self.progress = progress
        self.name = name
        self.task: Task | None = None
        self.note = ""

    @property
    def renews(self) -> bool:
        return self.progress.console.is_terminal

    def on_pulse(self, line: str) -> None:
        if self.renews and self.task is not None:
            self.task.update(self.task.done, f"{self.note} | {line}".removeprefix(" | "))
        self.progress.say(line)

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.task = self.progress.task(self.name, state.max_steps)
            self.task.begin_at(state.global_step)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if not any(name.startswith(("eval_", "train_")) for name in logs or {}):
            self.note = note(logs or {}) or self.note

    def on_evaluate(
        self, args: Any, state: TrainerState, control: Any, metrics: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero and (text := note(metrics or {})):
            self.progress.line(f"update {state.global_step}, evaluated: {text}")

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.task is not None and state.global_step < state.max_steps:  # the last one is not logged yet
            self.task.update(state.global_step, self.note)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.task is not None:
            self.task.update(state.global_step, self.note)


def note(logs: Mapping[str, Any]) -> str:
    """Writes a few of the logged metrics in one line."""
    return ", ".join(f"{name} {value:.3f}" for name, value in headlines(logs).items())
