"""A run that cannot learn says so."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

_PATIENCE = 10  # updates


class WarnWithoutSignal(TrainerCallback):
    """Warns once, with the likely cause, where ten updates in a row, or a whole run, give no decision an advantage
    other than 0: the loss then moves the policy nowhere."""

    def __init__(self) -> None:
        self._last = 0  # update with a signal
        self._latest: Mapping[str, Any] = {}  # of the latest update without
        self._warned = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._last, self._latest = state.global_step, {}

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not logs or "reward" not in logs:  # an evaluation, or the run's summary
            return
        if logs.get("advantages/zero", 1.0) < 1:
            self._last, self._latest = state.global_step, {}
            return
        self._latest = logs
        if state.global_step - self._last >= _PATIENCE:
            self._warn(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._latest and self._last == 0:
            self._warn(state)

    def _warn(self, state: TrainerState) -> None:
        if state.is_world_process_zero and not self._warned:
            logger.warning(
                "nothing was learned in the last %d updates, as no decision has an advantage other than 0: %s",
                state.global_step - self._last,
                likely_cause(self._latest),
            )
        self._warned = True


def likely_cause(logs: Mapping[str, Any]) -> str:
    """Why no advantage of an update differs from 0, and what to do about it.

    Args:
        logs: what was logged of it: shares in `endings/error`, `replies/cut`, `entropy` in nats, and the mean outcome
            in `reward`.
    """
    if logs.get("endings/error", 0.0) >= 0.5:
        return f"{logs['endings/error']:.0%} of episodes ended as errors; mend the code that their tracebacks name."
    if logs.get("replies/cut", 0.0) >= 0.9:
        return f"{logs['replies/cut']:.0%} of replies ran into the length limit; raise max_completion_length."
    if logs.get("entropy", math.inf) < 1e-3:
        return (
            f"the policy's entropy is {logs['entropy']:.2g} nats, so equal contexts get equal replies; raise "
            "temperature, or start from a less certain policy."
        )
    if "advantages/zero" not in logs:
        return "the method credits no decision; see what it compares in docs/methods.md, and raise its group size."
    return (
        f"the episodes that are compared came to equal outcomes (mean {logs['reward']:g}); take easier or harder "
        "tasks, a policy that succeeds now and then, larger groups, or rewards on the way."
    )
