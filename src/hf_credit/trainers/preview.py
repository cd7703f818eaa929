"""A look before a training: one update of a few tasks, in which the policy does not change."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback

from hf_credit.collectors import RolloutBatch
from hf_credit.files import OwnFolder
from hf_credit.methods import DecisionCredit, DecisionCredits
from hf_credit.methods.base import absent_inputs
from hf_credit.rollouts import Ending, Episode
from hf_credit.rollouts.reply_ends import was_cut
from hf_credit.trainers.callbacks import EpisodeCallback, WarnWithoutSignal, likely_cause, unread_replies
from hf_credit.trainers.recipes import Job, read_job
from hf_credit.trainers.recording import transcript
from hf_credit.trainers.training import build_trainer, tasks_of_update
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

    @property
    def scale(self) -> float:
        """The tasks of an update of the recipe for each task that was played."""
        return self.full_tasks / self.tasks

    @property
    def begins(self) -> bool:
        """Whether the policy can begin to learn: some advantage is not 0, and most replies are whole."""
        return (
            self.metrics.get("advantages/zero", 1.0) < 1.0
            and self.cut <= _MANY
            and not self.metrics.get("endings/error", math.nan) > _MANY
        )

    def conclusion(self) -> str:
        """Returns in one sentence whether the policy can begin to learn, and a remedy if it cannot."""
        if not self.begins:
            return (
                f"The policy cannot begin: {likely_cause({**self.metrics, 'replies/cut': self.cut}, self.unreadable)}"
            )
        if self.metrics.get("success", math.nan) >= _ALL:
            return "The policy has hardly anything to learn: nearly all episodes succeed; take harder tasks."
        return f"The policy can begin: {1 - self.metrics['advantages/zero']:.0%} of advantages differ from 0."

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
        yield self.conclusion()


class _Look(EpisodeCallback):
    """Keeps the episodes and the log of an update."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.credit: list[Sequence[DecisionCredit]] = []
        self.logs: dict[str, Any] = {}

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        self.episodes, self.credit = collected.episodes, list(advantages)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        self.logs = {**(logs or {}), **self.logs}


def preview(arguments: Sequence[str], tasks: int = 8, shown: int = 2) -> Preview:
    """Plays, credits and learns from a few tasks of a recipe once, with a learning rate of 0.

    Everything is as in the training: prompts, sampling, credit, loss and optimizer. The first update of the recipe is
    made smaller, so times and memory are estimates. No file of the recipe's `output_dir` is read or written.

    Args:
        arguments: as for `hf_credit.trainers.recipes.read_job`.
        tasks: number of task rows to play, at least; over all processes.
        shown: number of episodes in `transcripts`.

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
        job = read_job(arguments, {**_smaller(full, tasks), "output_dir": str(folder)})
        trainer = build_trainer(job)
        look = _Look()
        trainer.add_callback(look)
        for default in (ProgressCallback, PrinterCallback, WarnWithoutSignal):
            trainer.remove_callback(default)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begun
        replies = [
            decision for episode in look.episodes for decision in episode.own_decisions if not decision.observed
        ]
        tokenizer = trainer.chat.tokenizer
        return Preview(
            tasks=job.args.generation_batch_size,
            metrics={name: value for name, value in look.logs.items() if isinstance(value, int | float)},
            transcripts=tuple(
                transcript(episode, credit, tokenizer)
                for episode, credit in list(zip(look.episodes, look.credit, strict=True))[:shown]
            ),
            unread=tuple(_unread(look.episodes).most_common(3)),
            unreadable=unread_replies(trainer.interaction, look.episodes),
            longest_context=(
                max((len(one.context_ids) for one in replies), default=0),
                trainer.engine.max_context_tokens,
            ),
            longest_reply=(max((len(one.action_ids) for one in replies), default=0), job.args.max_completion_length),
            cut=sum(was_cut(one.action_ids, trainer.chat.end_tokens) for one in replies) / max(len(replies), 1),
            seconds=seconds,
            memory=_most_memory(),
            full_tasks=int(tasks_of_update(full.args)),
            updates=_updates(full, trainer.train_dataset),
        )


def _smaller(full: Job, tasks: int) -> dict[str, Any]:
    """The fields of a job of one update of at least `tasks` task rows, of which nothing is kept."""
    args, processes = full.args, int(full.args.world_size)
    rows = min(args.per_device_train_batch_size, -(-tasks // processes))
    steps = -(-tasks // (rows * processes))
    if rows * steps * processes % 2:
        steps += 1  # TRL compares pairs
    counted_in_steps = args.instances_per_update is None
    return {
        "per_device_train_batch_size": rows,
        "generation_batch_size": None,
        "steps_per_generation": steps,
        "gradient_accumulation_steps": steps if counted_in_steps else 1,
        "instances_per_update": None if counted_in_steps else steps * rows * processes,
        "max_steps": 1,
        "learning_rate": 0.0,
        "lr_scheduler_type": "constant",
        "lr_scheduler_kwargs": None,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "log_episodes": 0,
        "log_completions": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "eval_on_start": False,
        "load_best_model_at_end": False,
        "report_to": "none",
        "push_to_hub": False,
        "resume_from_checkpoint": None,
    }


def _unread(episodes: Sequence[Episode]) -> Counter[str]:
    """The replies that ended an episode as an invalid action."""
    replies = (one.decisions[-1].action_text for one in episodes if one.ending == Ending.INVALID_ACTION)
    lines = (repr(reply) for reply in replies)
    return Counter(line if len(line) <= _LINE else f"{line[:_LINE]}..." for line in lines)


def _most_memory() -> int:
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _updates(job: Job, rows: Any) -> int:
    args, task = job.args, job.task
    if args.max_steps > 0:
        return int(args.max_steps)
    count = len(rows) if task.dataset_name or task.problem_sets else task.training_tasks
    return max(1, int(args.num_train_epochs * count / int(tasks_of_update(args))))
