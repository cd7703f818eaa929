"""The context of a method during training: episodes, log-probabilities, values, other processes, the log."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hf_credit.environments.randomness import stream
from hf_credit.rollouts import Decision, Engine, Episode, Interaction, Ledger, RolloutRequest
from hf_credit.rollouts.failures import (
    EveryEpisodeFailedError,
    check_replays,
    in_one_line,
    record_replays,
    refuse_total_failure,
)
from hf_credit.rollouts.method_context import CriticInput, Policy

if TYPE_CHECKING:
    from hf_credit.trainers.credit import CreditTrainer


class TrainerContext:
    """The `MethodContext` of a trainer."""

    def __init__(self, trainer: CreditTrainer, engine: Engine[Any]) -> None:
        self.trainer = trainer
        self.engine = engine
        self.chat = engine.chat
        self.interaction: Interaction[Any] = engine.interaction
        self.failures = engine.failures
        self._played_in = 0
        self._values: dict[str, list[float]] = {}
        self._totals: dict[str, float] = {}
        self._warned = not trainer.is_world_process_zero()

    @property
    def update(self) -> int:
        return self.trainer.updates_collected

    @property
    def process(self) -> int:
        return int(self.trainer.accelerator.process_index)

    @property
    def end_tokens(self) -> Collection[int]:
        return self.trainer.chat.end_tokens

    def play(
        self,
        starts: Sequence[RolloutRequest[Any]],
        policy: Policy = "current",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[Episode]:
        engine = self.engine if template_kwargs is None else self.engine.rendered(template_kwargs)
        with ExitStack() as stack:
            if policy == "frozen":
                # Keys and values of one policy are invalid for the other.
                stack.enter_context(self.trainer.forgetting())
                stack.enter_context(self.trainer.frozen_policy())
            episodes = engine.run(starts)
            self.trainer.ranks.finish()
        if self.trainer.model.training:
            self.trainer.spend(Ledger.of(episodes, starts))
            record_replays(episodes, starts, self.mean)
            try:
                refuse_total_failure(episodes, self.trainer.ranks.gather)
                self._played_in = self.update
            except EveryEpisodeFailedError:
                if self._played_in != self.update:  # a later call may play one episode, whose failure is data
                    raise
        return episodes

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        with ExitStack() as stack:
            if policy == "frozen":
                stack.enter_context(self.trainer.frozen_policy())
            return self.trainer.decision_logprobs(decisions)

    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        return self.trainer.critics[critic](inputs)

    def gather(self, items: Sequence[Any]) -> list[Any]:
        return self.trainer.ranks.gather(list(items))

    def mean(self, name: str, values: Sequence[float]) -> None:
        self._values.setdefault(name, []).extend(values)

    def total(self, name: str, value: float) -> None:
        self._totals[name] = self._totals.get(name, 0) + value

    def log(self, name: str, value: float) -> None:
        self.trainer.log_metric(name, value)

    def exchange(self) -> None:
        """Logs what `mean` and `total` recorded since the last call, over all processes. Every process calls it, once
        an update.

        Raises:
            UnknownValuesError: most states that the method replayed have no value.
        """
        latest = self.failures.latest
        everyone = self.gather([(self._values, self._totals, None if latest is None else in_one_line(latest))])
        self._values, self._totals = {}, {}
        for values, totals, _ in everyone:
            for name, some in values.items():
                self.mean(name, some)
            for name, value in totals.items():
                self.total(name, value)
        self._warned = check_replays(self._values, next(filter(None, (e for *_, e in everyone)), None), self._warned)
        for name, some in self._values.items():
            if some:
                self.log(name, sum(some) / len(some))
        for name, value in self._totals.items():
            self.log(name, value)
        self._values, self._totals = {}, {}

    def draws(self, *purpose: int | str) -> random.Random:
        head, *rest = purpose or ("",)
        return stream(self.trainer.args.seed, head, self.update, self.process, *rest)

    def stream(self, *purpose: int | str) -> str | None:
        if not self.engine.honours_seeds:
            return None
        return " ".join(map(str, (self.trainer.args.seed, self.update, self.process, *purpose)))
