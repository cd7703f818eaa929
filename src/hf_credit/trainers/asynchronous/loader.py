"""From credited collections to the forward passes of every process."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import TrainerCallback

from hf_credit.methods import CriticTargets
from hf_credit.rollouts import Ledger
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.rollouts.pulse import PULSE
from hf_credit.trainers.asynchronous.collection import Collection, CreditedRollouts, Question
from hf_credit.trainers.asynchronous.packing import Sample, TooManyPassesError, Update, pack, plan
from hf_credit.trainers.callbacks import likely_cause
from hf_credit.trainers.ranks import patient

logger = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
_PATIENCE = 20  # collections in a row that take no step

Passes = list[dict[str, Tensor]]


class Supply(Protocol):
    """The source of collections, which learns what became of each."""

    collections: queue.Queue[Collection | Question | Exception]

    def check_health(self, stale_after_s: float) -> None:
        """Raises an error if no further collection can be expected."""

    def credited(self, number: int, critics: Mapping[str, Any], learning: bool) -> Collection:
        """Called with a collection that is drawn, by a method with critics, for its credit."""

    def dropped(self, number: int) -> None:
        """Called for a collection that is too old; its tasks are to be played again."""

    def trained(self, number: int) -> None:
        """Called once the policy has learned from a collection, or never will."""

    def state(self) -> dict[str, Any]:
        """Plain values to resume from: what is in progress, and what is credited but not learned from yet."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave, before anything is played."""


class Updates(TrainerCallback):
    """The micro-batches of one update after the other, for each process its own.

    The main process draws a collection only when an update needs it, so its age is known: a collection older than
    allowed is dropped completely. The main process divides the collection into `gradient_accumulation_steps` x
    processes forward passes and sends each process its share. Where roles have adapters, each pass has rows of one
    role only, and says which.

    Args:
        trainer: of the policy. Its `before_update` gets, on every process, the rollouts that an update learns from.

    Attributes:
        supply: of collections, on the main process.
        version: of the policy that learns.
        number: of the collection that is learned from, `None` before the first.
        ledger: the cost of all collections so far, with those that were dropped.
        wait_s: seconds spent waiting for collections; reset to 0 when they are logged.
        token_budget: maximum number of tokens of a pass.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.args, self.roles = trainer, trainer.args, trainer.roles
        self.supply: Supply | None = trainer.rollout_worker
        self.processes = trainer.accelerator.num_processes
        if self.processes > 1:
            patient(torch.distributed.group.WORLD)  # the first collection may take long, too
        self.token_budget = trainer.args.token_budget or 0
        self.version = 0
        self.number: int | None = None
        self.ledger = Ledger()
        self.wait_s = 0.0
        self._targets: list[CriticTargets] = []  # that critics learn next, of the main process

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.supply is None:
            return
        assert self.number is not None
        self.supply.trained(self.number)
        state.num_input_tokens_seen = self.ledger.tokens
        for name, total in {**self.ledger.metrics(), "num_tokens": self.ledger.tokens}.items():
            self.trainer.log_total(name, total)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        while True:
            yield from self._handed_out()

    def _handed_out(self) -> Passes:
        """The passes of this process; an error of the main process is raised on every process."""
        answers: list[Any] | None = None
        failure: Exception | None = None
        credited: CreditedRollouts | None = None
        if self.supply is not None:
            try:
                collection, update, trained = self._drawn()
                credited = collection.credited
                targets, self._targets = self._targets, []
                answers = [
                    (own, credited is not None, "", [self._share_of(process, one) for one in targets])
                    for process, own in enumerate(self._laid_out(collection, update, trained))
                ]
            except Exception as error:  # the other processes wait for an answer, whatever went wrong
                failure, answers = error, [([], False, f"{type(error).__name__}: {error}", [])] * self.processes
        while isinstance(own := self._scattered(answers), Question):  # while the main process credits
            self._predicted(own)
        if failure is not None:
            raise failure
        PULSE.phase = "learning"
        passes, shown, refusal, targets = own
        if refusal:
            raise RuntimeError(f"the main process stopped with {refusal}")
        if shown:
            self.trainer.before_update(credited or CreditedRollouts())
        if targets:
            self.trainer.critics.learn(targets)
        return passes

    def _scattered(self, answers: list[Any] | None) -> Any:
        """What the main process has for this one."""
        if self.processes == 1:
            assert answers is not None
            return answers[0]
        received: list[Any] = [None]
        dist = torch.distributed
        dist.scatter_object_list(received, answers, src=0, group=patient(dist.group.WORLD))
        return received[0]

    # Critics --------------------------------------------------------------------------------------------------------

    def _credited(self, collection: Collection, learning: bool) -> Collection:
        """The collection with the credit that critics give it now, and what they learn from it."""
        assert self.supply is not None
        PULSE.phase = "crediting"
        critics = {name: partial(self._values, name) for name in self.trainer.critics}
        with self.trainer.alone():
            collection = self.supply.credited(collection.number, critics, learning)
        assert collection.credited is not None
        self._targets += collection.credited.credit.critic_targets
        if not learning:
            self._log({"critics/alone": 1.0})
        return collection

    def _values(self, critic: str, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """A critic's predictions, of which each process computes a share while it waits for its passes."""
        asked = [Question(critic=critic, inputs=inputs[own]) for own in self._slices(len(inputs))]
        found = self._predicted(self._scattered(asked))
        if failed := [one for one in found if isinstance(one, Exception)]:
            raise failed[0]
        return [values for of_process in found for values in of_process]

    def _predicted(self, question: Question) -> list[Any]:
        """What each process predicts for its share of a question, or the error that it met."""
        try:
            own: Any = self.trainer.critics[question.critic](question.inputs)
        except Exception as error:  # the other processes wait for an answer, whatever went wrong
            own = error
        return list(self.trainer.ranks.gather([own]))

    def _answer(self, question: Question) -> None:
        """Answers what a collector asks while it plays."""
        assert question.predictions is not None
        try:
            question.predictions.set_result(self._values(question.critic, question.inputs))
        except Exception as error:
            question.predictions.set_exception(error)

    def _share_of(self, process: int, targets: CriticTargets) -> CriticTargets:
        """What critics learn in one process."""
        own = self._slices(len(targets.inputs))[process]
        return replace(targets, inputs=targets.inputs[own], targets=targets.targets[own], values=targets.values[own])

    def _slices(self, count: int) -> list[slice]:
        """The part of each process in so many items."""
        ends = [count * process // self.processes for process in range(self.processes + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def _drawn(self) -> tuple[Collection, Update, int]:
        """The next collection that is not too old, has credit, and fits, and its tokens in the loss.

        Rows longer than `token_budget` are left out. A collection takes no step if no row is left, or if it needs more
        passes than an update has.
        """
        assert self.supply is not None
        refusal = ""
        for _ in range(_PATIENCE):
            collection = self._fresh()
            alone = bool(self.trainer.critics) and self.trainer.state.global_step < self.args.critic_first_updates
            if self.trainer.critics:
                collection = self._credited(collection, not alone)
            learning: tuple[str, ...] = () if self.trainer.adapters is None else self.trainer.adapters.learning()
            rows = [row for row in collection.rows if not self.roles or row.role in learning]
            samples = [one for one in map(Sample.of, rows) if one is not None]
            fitting = [one for one in samples if one.read <= self.token_budget]
            learned = [one for one in fitting if one.advantages.any() and not alone]  # no other has a gradient
            if left_out := len(samples) - len(fitting):
                longest = max(one.read for one in samples)
                refusal = (
                    f"rows must have at most token_budget={self.token_budget} tokens, got {left_out} longer ones of "
                    f"up to {longest}; raise token_budget to {longest} or more, or bound the episodes."
                )
                self._log({"collections/rows_too_long_total": float(left_out)})
                logger.warning("collection %d is trained on in part: %s", collection.number, refusal)
            if fitting:
                try:
                    passes = self.args.gradient_accumulation_steps * self.processes
                    cost = 6.0 * self.trainer.model.config.get_text_config().hidden_size
                    # Without any, a step without a gradient, as in the synchronous trainer.
                    read = learned or [min(fitting, key=lambda one: one.targets[0]).silenced()]
                    update = plan(read, passes, self.token_budget, cost, by_role=bool(self.roles))
                except TooManyPassesError as error:
                    refusal = str(error)
                    logger.warning("collection %d is not trained on: %s", collection.number, refusal)
                else:
                    self.number = collection.number
                    self._log({"passes/skipped": 1 - len(learned) / len(samples)})
                    if len(learning) < len(self.roles):
                        self._log({"role/learning": float(self.roles.index(learning[0]))})
                    return collection, update, sum(len(one.targets) for one in fitting)
            which = "unfit" if samples else "without_credit"
            self._log({**collection.metrics, f"collections/{which}_total": 1.0})
            self.supply.trained(collection.number)
        if refusal:
            raise ValueError(f"{_PATIENCE} collections in a row took no step, as at least one did not fit: {refusal}")
        raise ValueError(
            f"a method must credit some decision, got none in {_PATIENCE} collections in a row: "
            f"{likely_cause({'reward': 0.0, **collection.metrics})}"
        )

    def _fresh(self) -> Collection:
        """The next collection that is not too old."""
        assert self.supply is not None
        begun = time.monotonic()
        while True:
            try:
                collection = self.supply.collections.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                self.supply.check_health(self.args.heartbeat_stale_after_s)
                continue
            if isinstance(collection, Exception):
                raise collection
            if isinstance(collection, Question):
                self._answer(collection)
                continue
            self.ledger += collection.ledger
            staleness = self.version - collection.version
            if staleness <= self.args.max_staleness:
                self.wait_s += time.monotonic() - begun
                self._log({"collections/staleness_mean": staleness, "collections/staleness_max": staleness})
                return collection
            logger.info("dropped collection %d, which is %d versions old", collection.number, staleness)
            self._log({"collections/dropped_total": 1.0})
            self.supply.dropped(collection.number)

    def _laid_out(self, collection: Collection, update: Update, trained: int) -> list[Passes]:
        """The passes of each process, in the layout of TRL's loss.

        TRL divides the loss of a micro-batch by its own tokens and by the number of micro-batches. Here all losses are
        divided by the tokens of the update, so that each token has the same weight. TRL divides by at least one token
        a pass; with fewer, the advantages are scaled to compensate.
        """
        share = trained / self.args.gradient_accumulation_steps
        counted = max(share, self.processes)
        found: list[Passes] = [[] for _ in range(self.processes)]
        read = []
        for first in range(0, len(update.rows), self.processes):
            rows = update.rows[first : first + self.processes]
            packed = [pack(samples) for samples in rows]
            tokens = sum(len(one["input_ids"]) for one in packed)
            read += [len(one["input_ids"]) for one in packed]
            for place, (own, one, samples) in enumerate(zip(found, packed, rows, strict=True), start=first):
                own.append(
                    {
                        **({"role": torch.tensor([self.roles.index(samples[0].role)])} if self.roles else {}),
                        **{name: value[None] for name, value in one.items()},
                        "advantages": one["advantages"][None] * (counted / share),
                        "attention_mask": torch.ones(1, len(one["input_ids"]), dtype=torch.long),
                        "idle": torch.tensor([place >= len(update.rows) - update.idle]),
                        "global_n_tokens": torch.tensor([counted]),
                        "global_n_forward_tokens": torch.tensor([float(tokens)]),
                        "mean_seq_len": torch.tensor([tokens / sum(map(len, rows))]),
                    }
                )
        self._log(
            {
                **collection.metrics,
                "batch/rows": sum(map(len, update.rows)) - update.idle,
                "batch/row_tokens_max": max(read),
                "batch/packing_ratio": (update.apart, update.read),
            }
        )
        return found

    def _log(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            total = name.startswith("world/")  # a sum over the run, which no window averages
            (self.trainer.log_total if total else self.trainer.log_metric)(name, value)
