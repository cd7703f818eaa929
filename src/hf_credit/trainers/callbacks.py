"""Callbacks of a run: files in every checkpoint, warnings, and what the console shows."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from hf_credit.collectors import RolloutBatch
from hf_credit.loading import half_precision
from hf_credit.methods import Credit, DecisionCredits
from hf_credit.methods.base import absent_inputs
from hf_credit.rollouts import Ending, Episode, Interaction
from hf_credit.rollouts.capabilities import Acting
from hf_credit.rollouts.metric_names import METRICS
from hf_credit.rollouts.pulse import PULSE, WITHIN
from hf_credit.trainers.ranks import from_main
from hf_credit.words import counted

logger = logging.getLogger(__name__)

_PATIENCE = 10  # updates
_CRITIC_PATIENCE = 20  # updates
_EXPLAINED = 0.02  # minimum share of its targets' variance that a useful critic explains
_QUOTED = 200  # characters of a reply
_RENEWED, _PRINTED = 1.0, 30.0  # seconds between two lines about a long update
_CHECKER = "hf_credit.verifiers.math"
_TOTAL = "train_runtime"  # only the summary at the end has it, and that is short


class CheckpointCallback(TrainerCallback):
    """A callback that writes files of its own into every checkpoint, which is incomplete without them."""

    def on_checkpoint(self, folder: Path) -> None:
        """Writes the files, on each process that saves the model, after all other files of the checkpoint.

        Args:
            folder: the checkpoint.
        """


class CreditCallback(TrainerCallback):
    """A callback that gets the credit of the decisions of every training update.

    Under `AsyncCreditTrainer` the main process has all rollouts of an update, and the others have an empty batch. Only
    collections that an update learns from are passed on, so none that is dropped or takes no step. A resumed run does
    not pass on those that its checkpoint holds with their credit.
    """

    def on_credit(self, trainer: Any, collected: RolloutBatch, credit: Credit) -> None:
        """Called on every process in each training update, after credit assignment and before anything learns.

        Args:
            trainer: a `CreditTrainer` or an `AsyncCreditTrainer`, which makes the update.
            collected: the rollouts of this process.
            credit: of the decisions of its trained episodes.
        """


class EpisodeCallback(TrainerCallback):
    """A callback that gets the episodes of every update and of every evaluation batch.

    Under `AsyncCreditTrainer` as `CreditCallback` describes it; an evaluation is one batch for each of its datasets.
    """

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        """Called on every process at the same time, before the policy learns from the episodes.

        Args:
            trainer: played the episodes; `trainer.model.training` is false in an evaluation.
            collected: the rollouts of this process.
            advantages: of the decisions of its trained episodes; all `None` in an evaluation.
        """


class IntervalsOfThisRun(TrainerCallback):
    """Restores the intervals of saving and logging from the settings, which the state of a checkpoint overrides."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        state.compute_steps(args, state.max_steps)


class StopWhenSpent(TrainerCallback):
    """Ends a training once `max_sampled_tokens` are sampled, and all episodes of the generation are trained on.

    By steps it is saved and evaluated then, as at its last step.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= self._spent(args)  # the run that is resumed may have ended

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._spent(args):
            control.should_training_stop = True
            control.should_save |= args.save_strategy == "steps"
            control.should_evaluate |= args.eval_strategy == "steps"

    def _spent(self, args: Any) -> bool:
        def spent() -> bool:  # where only the main process has the ledger, too
            return bool(self.trainer.ledger.completion_tokens >= args.max_sampled_tokens)

        return not self.trainer.in_generation and bool(from_main(self.trainer.accelerator, spent))


class WarnWithoutSignal(EpisodeCallback):
    """Warns once, with the likely cause, if ten consecutive updates or a whole run have no advantage other than 0.

    The loss then does not change the policy. It also warns of what the method reads, if no episode had it.
    """

    def __init__(self) -> None:
        self._begun = self._last = 0  # the first update of this run; the last one with a nonzero advantage
        self._latest: Mapping[str, Any] = {}  # log of the latest update without one
        self._played: tuple[Interaction[Any], Sequence[Episode]] | None = None  # in the latest update
        self._warned = self._told = False

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        if trainer.model.training:
            self._played = trainer.interaction, collected.episodes

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._begun = self._last = state.global_step
        self._latest = {}
        half = half_precision(one for one in model.parameters() if one.requires_grad)
        if half and not hasattr(model, "peft_config") and state.is_world_process_zero:  # adapters have larger steps
            logger.warning("trained weights are %s, in which small updates are lost; load them in float32.", half)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if not logs or "reward" not in logs:  # the log of an evaluation, or the run's summary
            return
        if state.global_step - self._begun >= _PATIENCE:
            self._tell_absent_inputs(state)
        if logs.get("advantages/zero", 1.0) < 1 or logs.get("critics/alone"):
            self._last, self._latest = state.global_step, {}
            return
        self._latest = logs
        if state.global_step - self._last >= _PATIENCE:
            self._warn(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._tell_absent_inputs(state)
        if self._latest and self._last == self._begun:
            self._warn(state)

    def _tell_absent_inputs(self, state: Any) -> None:
        for sentence in absent_inputs(state.log_history) if state.is_world_process_zero and not self._told else ():
            logger.warning("%s", sentence)
        self._told = True

    def _warn(self, state: Any) -> None:
        if state.is_world_process_zero and not self._warned:
            ended = [f"{ending} {self._latest.get(f'endings/{ending}', 0):.0%}" for ending in Ending]
            logger.warning(
                "nothing was learned in the last %s, as no decision has an advantage other than 0 (endings: %s; "
                "replies cut: %.0f%%): %s",
                counted(state.global_step - self._last, "update"),
                ", ".join(one for one in ended if not one.endswith(" 0%")) or "unknown",
                100 * self._latest.get("replies/cut", math.nan),
                likely_cause(self._latest, None if self._played is None else unread_replies(*self._played)),
            )
        self._warned = True


class WarnOfIdleCritics(TrainerCallback):
    """Warns once of a critic that explains less than 2 % of its targets' variance in 20 consecutive updates.

    Its values are then no better than a constant: they cost tokens and memory, and reduce no variance.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by critic, the last update in which it was useful or its targets constant
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
            if value >= _EXPLAINED or value == 0:  # 0 if all targets are equal
                self._last[critic] = state.global_step
            elif state.global_step - self._last.setdefault(critic, self._begun) >= _CRITIC_PATIENCE:
                self._warn(critic, value, state)

    def _warn(self, critic: str, value: float, state: Any) -> None:
        if state.is_world_process_zero and critic not in self._warned:
            logger.warning(
                "the critic %r explained at most %g of its targets' variance in the last %d updates, the last time "
                "%.3f, so it is no better than a constant; raise critic_learning_rate or critic_passes, or "
                "take a method without a critic.",
                critic,
                _EXPLAINED,
                state.global_step - self._last[critic],
                value,
            )
        self._warned.add(critic)


def unread_replies(interaction: Interaction[Any], episodes: Sequence[Episode]) -> str | None:
    """Tells of replies without a readable or legal action, with one of them and an action as it is read.

    Returns:
        A sentence with a remedy; `None` if less than half of the episodes have such a reply.
    """
    acting, unread = Acting(interaction), []
    for episode in episodes:
        for decision in episode.decisions:
            action = "?"
            with suppress(Exception):  # of a task without an environment
                action = acting.action_of(decision.state, decision.action_text)[1]
            if not action or (decision is episode.decisions[-1] and episode.ending == Ending.INVALID_ACTION):
                unread.append(decision)
                break
    if not unread or 2 * len(unread) < len(episodes):
        return None
    expected = ""
    with suppress(Exception):
        world, _ = acting.action_of(unread[0].state, "")
        legal = interaction.environment.legal_actions(world)  # type: ignore[attr-defined]
        expected = f" and the task reads, for example, {acting.write_action(legal[0])!r}"
    return (
        f"{len(unread)} of {len(episodes)} episodes have a reply without a readable or legal action, such as "
        f"{unread[0].action_text[:_QUOTED]!r}{expected}; take a policy that writes this, or train it on "
        "demonstrations first (hf-credit warm-up)."
    )


def likely_cause(logs: Mapping[str, Any], unread: str | None = None) -> str:
    """The likely cause if all advantages of an update are 0, with a remedy.

    Args:
        logs: of the update: the shares `endings/error`, `replies/cut` and `starts/later`, `entropy` in nats, and the
            mean outcome `reward`.
        unread: what `unread_replies` tells of its episodes.
    """
    if logs.get("endings/error", math.nan) >= 0.5:
        return f"{logs['endings/error']:.0%} of episodes ended in errors; fix the code that their tracebacks name."
    if logs.get("replies/cut", math.nan) >= 0.9:
        return f"{logs['replies/cut']:.0%} of replies reached the length limit; raise max_completion_length."
    if unread is not None:
        return unread
    if logs.get("entropy", math.inf) < 1e-3:
        return (
            f"the policy's entropy is {logs['entropy']:.2g} nats, so equal contexts get equal replies; raise "
            "temperature, or start from a policy with more entropy."
        )
    if "advantages/zero" not in logs:
        return "the method credits no decision; see `hf-credit methods`, and raise its group size."
    if "starts/later" in logs:
        return (
            "all episodes that begin in one state have equal outcomes, as if the policy did the same in all states; "
            "lower learning_rate, raise instances_per_update, or warm the policy up."
        )
    return (
        f"all compared episodes have equal outcomes (mean {logs['reward']:g}); take easier or harder tasks, a policy "
        "that sometimes succeeds, larger groups, or intermediate rewards."
    )


class ReportChecks(TrainerCallback):
    """Adds the results of the checks of mathematical answers since the last entry to the log, as shares.

    They are `answers/equal`, `answers/different`, `answers/no_answer`, `answers/given_up` and
    `answers/checker_failed`, of this process. Without checks it adds nothing.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if _CHECKER in sys.modules:
            self._before = sys.modules[_CHECKER].counts()  # the dry run of the first task rows does not count

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if _CHECKER not in sys.modules or logs is None:
            return
        counts = sys.modules[_CHECKER].counts()
        new = {status: count - self._before.get(status, 0) for status, count in counts.items()}
        self._before = counts
        if total := sum(new.values()):
            logs.update({f"answers/{status}": count / total for status, count in new.items()})


def headlines(logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log that summarise the progress of training or an evaluation, by their names in the log."""
    numbers = {
        name: value for name, value in logs.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if _TOTAL in logs:
        return numbers
    return {
        name: value
        for shown, metric in METRICS.items()
        if metric.headline
        for name, value in numbers.items()
        if name == shown or (name.startswith("eval_") and name.endswith(f"_{shown}"))
        if value or shown != "endings/error"
    }


class PulseCallback(TrainerCallback):
    """Prints what a long update does, on the main process; its base class shows the `headlines` of a log."""

    @property
    def renews(self) -> bool:
        """Whether a line replaces the one before it."""
        return False

    def on_pulse(self, line: str) -> None:
        """Called from a thread of its own, every second if the callback `renews`, else every 30 seconds."""
        print(line, flush=True)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        super().on_log(args, state, control, logs=headlines(logs or {}), **kwargs)


class BriefProgress(PulseCallback, ProgressCallback):
    """The progress bar of transformers with the `headlines` of a log; `trainer.state.log_history` has all of it.

    In a terminal the bar also shows what an update does.
    """

    @property
    def renews(self) -> bool:
        return sys.stderr.isatty()

    def on_pulse(self, line: str) -> None:
        if not self.renews:
            super().on_pulse(line)
        elif self.training_bar is not None:
            self.training_bar.set_postfix_str(line)


class BriefPrinter(PulseCallback, PrinterCallback):
    """Prints the `headlines` of a log, without a progress bar."""


def show_headlines(trainer: Any) -> None:
    """Lets a trainer's progress bar or printer show only the `headlines` of a log, and what a long update does."""
    for verbose, brief in ((ProgressCallback, BriefProgress), (PrinterCallback, BriefPrinter)):
        if trainer.pop_callback(verbose) is not None:
            trainer.add_callback(brief())
            return
    trainer.add_callback(PulseCallback())  # next to the table of a notebook


def watched(trainer: Any) -> AbstractContextManager[None]:
    """Context in which the last `PulseCallback` of a trainer shows what a long update or evaluation does."""
    found = [one for one in trainer.callback_handler.callbacks if isinstance(one, PulseCallback)]
    if not found or not trainer.is_world_process_zero():
        return nullcontext()

    def show() -> None:
        number = trainer.state.global_step + (PULSE.phase in WITHIN)
        found[-1].on_pulse(f"update {number}: {PULSE}")

    return PULSE.watched(show, _RENEWED if found[-1].renews else _PRINTED)
