"""What a trainer prints in a script: the few numbers that say how it goes, where transformers prints them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerControl, TrainerState, TrainingArguments

_SHOWN = ("loss", "reward", "success", "completion", "oracle/valid", "endings/error", "advantages/zero")
_TOTAL = "train_runtime"  # of the summary at the end, which is short


def headlines(logs: Mapping[str, Any]) -> dict[str, float]:
    """The few numbers of a log that say how training or an evaluation goes, by the names they are logged under."""
    if _TOTAL in logs:
        return {name: value for name, value in logs.items() if _is_number(value)}
    found = {}
    for name, value in logs.items():
        evaluated = name.startswith("eval_")
        shown = any(name == one or (evaluated and name.endswith(f"_{one}")) for one in _SHOWN)
        if shown and _is_number(value) and (value or not name.endswith("endings/error")):
            found[name] = value
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(name: str) -> int:
    return next((place for place, one in enumerate(_SHOWN) if name.endswith(one)), len(_SHOWN))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class BriefProgress(ProgressCallback):
    """The bar of transformers with the `headlines` of a log; all of it is in `trainer.state.log_history`."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().on_log(args, state, control, logs=headlines(logs or {}), **kwargs)


class BriefPrinter(PrinterCallback):
    """The same without a bar."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().on_log(args, state, control, logs=headlines(logs or {}), **kwargs)
