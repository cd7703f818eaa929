"""The context of a method during training: episodes, log-probabilities, values, other processes, the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from hf_credit.rollouts import Decision, Engine, Ledger, LocalContext
from hf_credit.rollouts.failures import check_replays, in_one_line
from hf_credit.rollouts.method_context import CriticInput, Policy
from hf_credit.rollouts.samplers import CONTINUATIONS
from hf_credit.trainers.metrics import mean


class KeepingContext(LocalContext):
    """A context that keeps what `mean` and `total` record of an update."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: dict[str, list[float]] = {}
        self.totals: dict[str, float] = {}

    def mean(self, name: str, values: Sequence[float]) -> None:
        self.kept.setdefault(name, []).extend(values)

    def total(self, name: str, value: float) -> None:
        self.totals[name] = self.totals.get(name, 0) + value

    def logged(self) -> dict[str, float]:
        """The metrics of the update."""
        return {name: mean(some) for name, some in {**self.metrics, **self.kept}.items() if some} | self.totals


class TrainerContext(KeepingContext):
    """The `MethodContext` of a `CreditTrainer`, which sets `update`."""

    engine: Engine[Any]

    def __init__(self, trainer: Any, engine: Engine[Any]) -> None:
        others = dict(trainer.samplers)
        player = others.pop(CONTINUATIONS, None)
        if player is not None and others:
            player = {**dict.fromkeys(trainer.interaction.roles, player), **others}
        super().__init__(engine, seed=trainer.args.seed, player=player)
        self.trainer = trainer
        self.update, self.process = trainer.updates_collected, int(trainer.accelerator.process_index)
        self._warned = not trainer.is_world_process_zero()

    @property
    def learning(self) -> bool:  # type: ignore[override]
        return bool(self.trainer.model.training)

    @contextmanager
    def playing(self, policy: Policy) -> Iterator[Engine[Any]]:
        with ExitStack() as stack:
            if policy == "frozen":
                # Keys and values of one policy are invalid for the other.
                stack.enter_context(self.trainer.forgetting())
                stack.enter_context(self.trainer.frozen_policy())
            yield self.engine
            self.trainer.ranks.finish()

    def spend(self, cost: Ledger) -> None:
        if self.learning:
            self.trainer.spend(cost)

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        with ExitStack() as stack:
            if policy == "frozen":
                stack.enter_context(self.trainer.frozen_policy())
            return self.trainer.decision_logprobs(decisions)

    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        return self.trainer.critics[critic](inputs)

    def gather(self, items: Sequence[Any]) -> list[Any]:
        return self.trainer.ranks.gather(list(items))

    def log(self, name: str, value: float) -> None:
        self.trainer.log_metric(name, value)

    def exchange(self) -> None:
        """Logs what `mean` and `total` recorded since the last call, over all processes. Every process calls it, once
        an update.

        Raises:
            UnknownValuesError: most states that the method replayed have no value.
        """
        latest = self.failures.latest
        everyone = self.gather([(self.kept, self.totals, None if latest is None else in_one_line(latest))])
        self.kept, self.totals = {}, {}
        for values, totals, _ in everyone:
            for name, some in values.items():
                self.mean(name, some)
            for name, value in totals.items():
                self.total(name, value)
        self._warned = check_replays(self.kept, next(filter(None, (e for *_, e in everyone)), None), self._warned)
        for name, value in self.logged().items():
            self.log(name, value)
        self.kept, self.totals = {}, {}
