"""A look before a training: one update of a few tasks, in which the policy does not change."""

from __future__ import annotations

import copy
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hf_credit import methods
from hf_credit.collectors import RolloutBatch
from hf_credit.diagnostics.signal import SignalDiagnosis, can_tell
from hf_credit.files import OwnFolder
from hf_credit.methods import DecisionCredit, DecisionCredits
from hf_credit.methods.base import absent_inputs
from hf_credit.rollouts import Ending, Episode, Interaction
from hf_credit.rollouts.capabilities import Oracled, Replayable, Scripted
from hf_credit.rollouts.reply_ends import was_cut
from hf_credit.trainers.callbacks import EpisodeCallback, likely_cause, unread_replies
from hf_credit.trainers.recipes import Job, read_job
from hf_credit.trainers.recording import transcript
from hf_credit.trainers.signal import NO_UPDATE, OUTCOME, measure
from hf_credit.trainers.training import build_trainer, load_rows, tasks_of_update
from hf_credit.words import counted, duration

_MANY = 0.5  # a share of replies or episodes above which a training hardly begins
_ALL = 0.98  # a share of successes above which there is little left to learn
_LINE = 60  # characters of a reply in a list


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What one update of a few tasks showed.

    Attributes:
        tasks: number of task rows that were played, over all processes.
        metrics: of the update, by the names of the log.
        transcripts: some episodes of the main process, as the policy reads and writes them.
        unread: the most frequent replies that ended an episode as an invalid action, and how often each did.
        unreadable: what `hf_credit.trainers.callbacks.unread_replies` tells of the episodes.
        longest_context: the most tokens of a context, and the limit; infinite without one.
        longest_reply: the most tokens of a reply, and the limit.
        cut: share of the replies that reached the limit.
        seconds: of this update.
        memory: the most bytes that the process had in use, on the GPU if there is one.
        full_tasks: task rows of an update of the recipe.
        updates: of the recipe.
        method: the recipe's.
        at_hand: what the task has besides its outcome.
        signal: of the method and of the plain outcome; `None` if that of the method was not measured.
    """

    tasks: int
    metrics: Mapping[str, float]
    transcripts: tuple[str, ...]
    unread: tuple[tuple[str, int], ...]
    unreadable: str | None
    longest_context: tuple[int, float]
    longest_reply: tuple[int, int]
    cut: float
    seconds: float
    memory: int
    full_tasks: int
    updates: int
    method: str
    at_hand: tuple[str, ...] = ()
    signal: SignalDiagnosis | None = None

    @property
    def scale(self) -> float:
        """The tasks of an update of the recipe for each task that was played."""
        return self.full_tasks / self.tasks

    @property
    def _telling(self) -> float:
        """The share of collections with a signal; of advantages other than 0 if it was not measured."""
        if self.signal is None:
            return 1 - self.metrics.get("advantages/zero", 1.0)
        return 1 - self.signal.signals[self.method].silent

    @property
    def begins(self) -> bool:
        """Whether the policy can begin to learn: some advantage is not 0, and most replies are whole."""
        return self._telling > 0 and self.cut <= _MANY and not self.metrics.get("endings/error", math.nan) > _MANY

    def conclusion(self) -> str:
        """Returns in one sentence whether the policy can begin to learn, and a remedy if it cannot."""
        if not self.begins:
            cause = likely_cause({**self.metrics, "replies/cut": self.cut}, self.unreadable)
            return f"The policy cannot begin: {cause}"
        if self.metrics.get("success", math.nan) >= _ALL:
            return "The policy has hardly anything to learn: nearly all episodes succeed; take harder tasks."
        told = "advantages differ from 0" if self.signal is None else "collections have a signal"
        return f"The policy can begin: {self._telling:.0%} of {told}."

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for number, text in enumerate(self.transcripts, 1):
            yield f"Episode {number} of {self.tasks} tasks\n{text}"
        yield f"Tasks played: {self.tasks} (an update of the recipe has {self.full_tasks})"
        yield f"Outcome: mean {self.metrics.get('reward', math.nan):.3f}" + (
            f", success {self.metrics['success']:.0%}" if "success" in self.metrics else ""
        )
        ended = {ending: self.metrics.get(f"endings/{ending}") for ending in Ending}
        yield "Endings: " + ", ".join(f"{ending} {share:.0%}" for ending, share in ended.items() if share)
        yield f"Turns of an episode: {self.metrics.get('turns/mean', math.nan):.1f}"
        yield f"Longest context: {self.longest_context[0]} tokens of at most {self.longest_context[1]:g}"
        if share := self.metrics.get("context/earlier_thoughts"):
            yield f"Thoughts in earlier replies: {share:.0%} of contexts; history: rendered may drop them"
        yield f"Longest reply: {self.longest_reply[0]} tokens of at most {self.longest_reply[1]}, {self.cut:.0%} cut"
        for reply, count in self.unread:
            yield f"No legal action, {counted(count, 'time')}: {reply}"
        yield from absent_inputs([self.metrics])
        if "advantages/zero" in self.metrics:
            yield f"Advantages other than 0: {1 - self.metrics['advantages/zero']:.0%}"
        tokens = sum(self.metrics.get(f"tokens/{name}", math.nan) for name in ("generated", "context"))
        update, whole = self.scale * self.seconds, self.scale * self.updates
        yield f"An update of the recipe: about {duration(update)} and {self.scale * tokens:,.0f} tokens"
        all_of_it = f"about {duration(whole * self.seconds)} and {whole * tokens:,.0f} tokens"
        yield f"The recipe's {counted(self.updates, 'update')}: {all_of_it}"
        yield f"Memory: {self.memory / 2**30:.1f} GiB at most"
        if self.signal is not None:
            yield from self._signal(self.signal)
        yield self.conclusion()

    def _signal(self, found: SignalDiagnosis) -> Iterator[str]:
        for name, own in found.signals.items():
            silent = f"{own.silent:.0%} of {own.signal.n} collections silent"
            yield f"Signal of {name}, generated tokens until the signal-to-noise ratio is 1: {own} ({silent})"
        for pair, value in found.cosines.items():
            yield f"Cosine of the gradients of {pair}: {value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]"
        if (outcome := found.signals.get(OUTCOME)) is None:
            return
        share, none = outcome.success, outcome.silent == 1
        if none or not outcome.measurable:
            between = f"(95% interval {share.low:.1%} to {share.high:.1%})"
            known = f"{share.mean:.1%} of the episodes of {share.n} tasks succeed {between}; "
            says = f"{'is silent' if none else 'says little'}: {known if share.n else ''}its signal: {outcome}."
            yield f"The outcome {says} At hand: {'; '.join(self.at_hand)}."


class _Look(EpisodeCallback):
    """Keeps the episodes, the log and the time of the first update."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.credit: list[Sequence[DecisionCredit]] = []
        self.logs: dict[str, Any] = {}
        self.begun = self.ended = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begun = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.ended = self.ended or time.perf_counter()

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        if not self.episodes:
            self.episodes, self.credit = collected.episodes, list(advantages)
            self.chat, self.most_context = trainer.chat, trainer.engine.max_context_tokens

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        self.logs = {**(logs or {}), **self.logs}


def preview(arguments: Sequence[str], tasks: int = 8, shown: int = 2, collections: int = 16) -> Preview:
    """Plays, credits and learns from a few tasks of a recipe several times, with a learning rate of 0.

    Everything is as in the training: prompts, sampling, credit and loss. The updates of the recipe are made smaller,
    so times and memory are estimates. No file of the recipe's `output_dir` is read or written. It ends after eight
    updates with a success, otherwise when the share of successes is below 3 % for sure, of independent tasks, or after
    all `collections`; then the plain outcome has as many. Where processes share the weights, one update is all.

    Args:
        arguments: as for `hf_credit.trainers.recipes.read_job`.
        tasks: number of task rows to play, at least; over all processes.
        shown: number of episodes in `transcripts`.
        collections: the most updates; fewer than 3 measure no signal.

    Raises:
        ValueError: a setting is invalid, or the training is asynchronous.
    """
    full = read_job(arguments)
    if full.task.asynchronous:
        raise ValueError(
            "a preview needs training synchronous, got asynchronous; preview a copy of the recipe with training: "
            "synchronous and without gradient_accumulation_steps and what only AsyncCreditConfig has, such as "
            "token_budget, concurrent_collections and max_staleness."
        )
    with OwnFolder(prefix="hf-credit-preview-") as folder:
        fields = {**_smaller(full, tasks), "output_dir": str(folder), "max_steps": collections}
        job = read_job(arguments, fields)
        look, rows, plain = _Look(), load_rows(job), replace(job, args=copy.deepcopy(job.args))
        loaded: list[Any] = []

        def own() -> Any:
            trainer: Any = build_trainer(job, rows)
            loaded.append(trainer.model)
            some = trainer.to_read  # the first update tells what one costs whose rows all have a gradient
            trainer.to_read = lambda rows: some(rows) if look.ended else rows
            trainer.add_callback(look)
            return trainer

        method = str(job.task.method)
        makers = {method: own}
        if collections > 2:
            makers.setdefault(OUTCOME, lambda: build_trainer(plain, rows, methods.make(OUTCOME), *loaded))
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        found = measure(str(job.model.model_name_or_path), makers, can_tell)
        replies = [
            decision for episode in look.episodes for decision in episode.own_decisions if not decision.observed
        ]
        return Preview(
            tasks=job.args.generation_batch_size,
            metrics={name: value for name, value in look.logs.items() if isinstance(value, int | float)},
            transcripts=tuple(
                transcript(episode, credit, look.chat.tokenizer)
                for episode, credit in list(zip(look.episodes, look.credit, strict=True))[:shown]
            ),
            unread=tuple(_unread(look.episodes).most_common(3)),
            unreadable=unread_replies(job.interaction, look.episodes),
            longest_context=(max((len(one.context_ids) for one in replies), default=0), look.most_context),
            longest_reply=(max((len(one.action_ids) for one in replies), default=0), job.args.max_completion_length),
            cut=sum(was_cut(one.action_ids, look.chat.end_tokens) for one in replies) / max(len(replies), 1),
            seconds=look.ended - look.begun,
            memory=_most_memory(),
            full_tasks=int(tasks_of_update(full.args)),
            updates=_updates(full, rows.train, look.logs.get("tokens/generated", 0) / job.args.generation_batch_size),
            method=method,
            at_hand=tuple(_at_hand(job.interaction, look.episodes)),
            signal=found if method in found.signals else None,
        )


def _smaller(full: Job, tasks: int) -> dict[str, Any]:
    """The fields of a job of updates of at least `tasks` task rows, of which nothing is kept."""
    args, processes = full.args, int(full.args.world_size)
    rows = min(args.per_device_train_batch_size, -(-tasks // processes))
    steps = -(-tasks // (rows * processes))
    if rows * steps * processes % 2:
        steps += 1  # TRL compares pairs
    counted_in_steps = args.instances_per_update is None
    return {
        **NO_UPDATE,
        "per_device_train_batch_size": rows,
        "generation_batch_size": None,
        "num_iterations": 1,
        "steps_per_generation": steps,
        "gradient_accumulation_steps": steps if counted_in_steps else 1,
        "instances_per_update": None if counted_in_steps else steps * rows * processes,
    }


def _at_hand(interaction: Interaction[Any], episodes: Sequence[Episode]) -> Iterator[str]:
    """What the task has besides its outcome, and what takes it."""
    judged, player = Oracled(interaction).check_oracle(None), Scripted(interaction).scripted_player(1.0)
    source = "its own player" if player is not None else "recorded episodes that succeeded"
    if judged is not None:
        yield "the verdicts of its oracle on every move (verifiable_process)"
    if Replayable(interaction).replayable:
        yield f"starts in reach, late in walks of {source}, as its states are restored by replay"
    if any(decision.reward for episode in episodes for step in episode.steps[:-1] for decision in step):
        yield "the rewards of its steps (methods of `hf-credit methods` that read them, such as ppo)"
    yield f"a warm-up on {source} (hf-credit warm-up)"


def _unread(episodes: Sequence[Episode]) -> Counter[str]:
    """The replies that ended an episode as an invalid action."""
    replies = (one.decisions[-1].action_text for one in episodes if one.ending == Ending.INVALID_ACTION)
    lines = (repr(reply) for reply in replies)
    return Counter(line if len(line) <= _LINE else f"{line[:_LINE]}..." for line in lines)


def _most_memory() -> int:
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _updates(job: Job, rows: Any, tokens: float) -> int:
    """The updates of a recipe, of which a task takes so many sampled tokens."""
    args, task, tasks = job.args, job.task, int(tasks_of_update(job.args))
    count = len(rows) if task.dataset_name or task.problem_sets else task.training_tasks
    updates = int(args.max_steps) if args.max_steps > 0 else max(1, int(args.num_train_epochs * count / tasks))
    if args.max_sampled_tokens is None or not tokens > 0:
        return updates
    return min(updates, math.ceil(args.max_sampled_tokens / (tokens * tasks)))
