"""What watches a run: files of its own in every checkpoint, warnings, and what is printed and logged beside it."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Credit, DecisionCredit

if TYPE_CHECKING:
    from hf_credit.trainers.base import EpisodeTrainer
    from hf_credit.trainers.credit import CreditTrainer

logger = logging.getLogger(__name__)

_PATIENCE = 10  # updates
_CRITIC_PATIENCE = 20  # updates
_EXPLAINED = 0.02  # the least share of the variance of its targets that a critic of use explains
_CHECKER = "hf_credit.verifiers.math"
_SHOWN = ("loss", "reward", "success", "completion", "oracle/valid", "endings/error", "advantages/zero")
_TOTAL = "train_runtime"  # of the summary at the end, which is short


class CheckpointCallback(TrainerCallback):
    """A callback with files of its own in every checkpoint, which is not complete without them."""

    def on_checkpoint(self, folder: Path) -> None:
        """Writes them, on each process that saves the model, once everything else of the checkpoint is there.

        Args:
            folder: the checkpoint.
        """


class CreditCallback(TrainerCallback):
    """A callback that is shown what decisions got which credit."""

    def on_credit(self, trainer: CreditTrainer, collected: RolloutBatch, credit: Credit) -> None:
        """Called on every process in each update of training, after credit is given and before anything learns.

        Args:
            trainer: whose update it is.
            collected: what this process played.
            credit: of its trained episodes.
        """


class EpisodeCallback(TrainerCallback):
    """A callback that is shown the episodes of every update and of every batch of an evaluation."""

    def on_episodes(
        self, trainer: EpisodeTrainer, collected: RolloutBatch, advantages: Sequence[Sequence[DecisionCredit]]
    ) -> None:
        """Called on every process at the same time, before the policy learns from them.

        Args:
            trainer: who plays them.
            collected: what this process played.
            advantages: of the decisions of its trained episodes, none of which has one in an evaluation.
        """


class IntervalsOfThisRun(TrainerCallback):
    """The state of a checkpoint brings along its intervals of saving and logging; those of the settings win."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        state.compute_steps(args, state.max_steps)


class WarnWithoutSignal(TrainerCallback):
    """Warns once, with the likely cause, where ten updates in a row, or a whole run, give no decision an advantage
    other than 0: the loss then moves the policy nowhere."""

    def __init__(self) -> None:
        self._last = 0  # update with a signal
        self._latest: Mapping[str, Any] = {}  # of the latest update without
        self._warned = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._last, self._latest = state.global_step, {}

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if not logs or "reward" not in logs:  # an evaluation, or the run's summary
            return
        if logs.get("advantages/zero", 1.0) < 1 or logs.get("critics/alone"):
            self._last, self._latest = state.global_step, {}
            return
        self._latest = logs
        if state.global_step - self._last >= _PATIENCE:
            self._warn(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._latest and self._last == 0:
            self._warn(state)

    def _warn(self, state: Any) -> None:
        if state.is_world_process_zero and not self._warned:
            logger.warning(
                "nothing was learned in the last %d updates, as no decision has an advantage other than 0: %s",
                state.global_step - self._last,
                likely_cause(self._latest),
            )
        self._warned = True


class WarnOfIdleCritics(TrainerCallback):
    """Warns once of a critic that explains next to nothing of its targets' variance in 20 updates in a row.

    Its values are then no better than a constant: they cost tokens and memory, and lower no variance.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # update of each critic in which it was of use, or had nothing to explain
        self._begun = 0
        self._warned: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._last, self._begun = {}, state.global_step

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        for name, value in (logs or {}).items():
            critic, _, measure = name.rpartition("/")
            if measure != "explained_variance":
                continue
            if value >= _EXPLAINED or value == 0:  # all targets alike
                self._last[critic] = state.global_step
            elif state.global_step - self._last.setdefault(critic, self._begun) >= _CRITIC_PATIENCE:
                self._warn(critic, value, state)

    def _warn(self, critic: str, value: float, state: Any) -> None:
        if state.is_world_process_zero and critic not in self._warned:
            logger.warning(
                "the critic %r explained at most %g of its targets' variance in the last %d updates, the last time "
                "%.3f, so it is no better than a constant; raise critic_learning_rate or critic_passes, set "
                "critic_past_updates and critic_held_out, or take a method without a critic.",
                critic,
                _EXPLAINED,
                state.global_step - self._last[critic],
                value,
            )
        self._warned.add(critic)


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


class ReportChecks(TrainerCallback):
    """Adds to the log what the checks of mathematical answers came to since the last entry, as shares.

    They are `answers/equal`, `answers/different`, `answers/no_answer`, `answers/given_up` and
    `answers/checker_failed`, of this process. Without checks there is nothing to add.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if _CHECKER in sys.modules:
            self._before = sys.modules[_CHECKER].counts()  # the dry run of the first task rows is none of the run's

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if _CHECKER not in sys.modules or logs is None:
            return
        counts = sys.modules[_CHECKER].counts()
        new = {status: count - self._before.get(status, 0) for status, count in counts.items()}
        self._before = counts
        if total := sum(new.values()):
            logs.update({f"answers/{status}": count / total for status, count in new.items()})


def headlines(logs: Mapping[str, Any]) -> dict[str, float]:
    """The few numbers of a log that say how training or an evaluation goes, by the names they are logged under."""
    numbers = {name: value for name, value in logs.items() if isinstance(value, int | float)}
    numbers = {name: value for name, value in numbers.items() if not isinstance(value, bool)}
    if _TOTAL in logs:
        return numbers
    found: dict[str, float] = {}
    for shown in _SHOWN:
        for name, value in numbers.items():
            of_this = name == shown or (name.startswith("eval_") and name.endswith(f"_{shown}"))
            if of_this and (value or shown != "endings/error"):
                found[name] = value
    return found


class BriefProgress(ProgressCallback):
    """The bar of transformers with the `headlines` of a log; all of it is in `trainer.state.log_history`."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        super().on_log(args, state, control, logs=headlines(logs or {}), **kwargs)


class BriefPrinter(PrinterCallback):
    """The same without a bar."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        super().on_log(args, state, control, logs=headlines(logs or {}), **kwargs)
