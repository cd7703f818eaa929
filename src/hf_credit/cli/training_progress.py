"""The progress that `hf-credit train` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerState

from hf_credit.cli.progress import Progress, Task
from hf_credit.trainers.callbacks import PulseCallback, headlines

_TOKENS = "budget/completion_tokens"


class ShowProgress(PulseCallback):
    """Shows the updates, or the tokens if these end the training, a few of the latest metrics, and a long update."""

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
            tokens = getattr(args, "max_sampled_tokens", None)
            self.task = self.progress.task("tokens sampled" if tokens else self.name, tokens or state.max_steps)
            self.task.begin_at(_done(args, state))

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
        if self.task is not None and (done := _done(args, state)) < self.task.total:  # the last one is not logged yet
            self.task.update(done, self.note)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.task is not None:
            self.task.update(_done(args, state), self.note)


def _done(args: Any, state: TrainerState) -> int:
    """The updates made or, if tokens end the training, the tokens sampled up to the last log."""
    if getattr(args, "max_sampled_tokens", None) is None:
        return state.global_step
    logged = (log[_TOKENS] for log in reversed(state.log_history) if _TOKENS in log)
    return int(next(logged, 0))


def note(logs: Mapping[str, Any]) -> str:
    """Writes a few of the logged metrics in one line."""
    return ", ".join(f"{name} {value:.3f}" for name, value in headlines(logs).items())
