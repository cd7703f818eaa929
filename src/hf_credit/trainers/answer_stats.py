"""What the checks of answers came to, in the log of a run."""

from __future__ import annotations

import sys
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_CHECKER = "hf_credit.verifiers.math"


class ReportChecks(TrainerCallback):
    """Adds to the log what the checks of mathematical answers came to since the last entry, as shares.

    They are `answers/equal`, `answers/different`, `answers/no_answer`, `answers/given_up` and
    `answers/checker_failed`, of this process. Without checks there is nothing to add.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        checker = sys.modules.get(_CHECKER)
        if checker is not None:
            self._before = checker.counts()  # the dry run of the first task rows is none of the run's

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        checker = sys.modules.get(_CHECKER)
        if checker is None or logs is None:
            return
        now = checker.counts()
        new = {status: count - self._before.get(status, 0) for status, count in now.items()}
        self._before = now
        if total := sum(new.values()):
            logs.update({f"answers/{status}": count / total for status, count in new.items()})
