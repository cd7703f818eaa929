"""What a run leaves in its folder while it trains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_credit.evaluation.runs import CONFIG_FILE, FACTS_FILE, LOG_FILE, read_log, versions, write_config
from hf_credit.redaction import redacted


class RunRecorder(TrainerCallback):
    """Writes the settings, the facts and the log of a run to its output folder.

    Args:
        config: every setting, as plain values.
        facts: what else should be known of the run.
    """

    def __init__(self, config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        self.config = config
        self.facts = facts

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


def _folder(args: TrainingArguments) -> Path:
    assert args.output_dir is not None  # transformers sets one where the user does not
    return Path(args.output_dir)


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, default=float) + "\n"
