"""Collections: while they are played, and as they go from the worker, which plays and credits, to the trainer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Credit, DecisionCredits
from hf_credit.methods.memory import to_plain
from hf_credit.rollouts import Decision, Engine, Ledger, Row
from hf_credit.rollouts.method_context import CriticInput, Policy
from hf_credit.trainers.asynchronous.requests import Known, Place
from hf_credit.trainers.method_context import KeepingContext
from hf_credit.trainers.starts import Start


@dataclass(frozen=True, kw_only=True)
class CreditedRollouts:
    """What callbacks get of a collection; by default that of a process that plays nothing.

    Attributes:
        collected: its rollouts.
        credit: of its decisions that may be trained on.
        advantages: of the decisions of its trained episodes, as they enter the loss.
    """

    collected: RolloutBatch = field(default_factory=RolloutBatch)
    credit: Credit = field(default_factory=lambda: Credit(decisions={}))
    advantages: DecisionCredits = ()


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The episodes of one update, credited and laid out in rows.

    Attributes:
        number: counted from 0 in the order of tasks; the same after a restart.
        version: of the policy, the oldest that any of its replies came from.
        ledger: what it cost.
        rows: with the sampler's log-probabilities. There may be none, where nothing got credit.
        metrics: of this collection, logged when it is trained on.
        credited: its rollouts and their credit, for callbacks and critics; `None` if it was credited before a
            restart, or is not yet.
    """

    number: int
    version: int
    ledger: Ledger
    rows: tuple[Row, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    credited: CreditedRollouts | None = field(default=None, compare=False, repr=False)

    def state(self) -> dict[str, Any]:
        """Plain values, without what is for callbacks."""
        values = {name: value for name, value in vars(self).items() if name != "credited"}
        return {**values, "rows": [dict(vars(row)) for row in self.rows], "ledger": self.ledger.to_dict()}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Collection:
        """The inverse of `state`."""
        rows = tuple(Row(**row) for row in state["rows"])
        return cls(**{**state, "rows": rows, "ledger": Ledger(**state["ledger"])})


@dataclass(frozen=True, kw_only=True)
class Question:
    """Inputs of a critic, which is in the trainer's process, and the future of its predictions if a collector asks."""

    critic: str
    inputs: Sequence[CriticInput]
    predictions: Future[list[tuple[float, ...]]] | None = None


class CollectionContext(KeepingContext):
    """The `MethodContext` of one collection, whose update is one more than its number, as in synchronous training.

    It has the settings, the sampler and the lock of the worker, and the critics once the collection is credited.
    """

    sampler: Any

    def __init__(self, worker: Any, engine: Engine[Any], number: int) -> None:
        super().__init__(engine, seed=worker.seed)
        self.worker, self.sampler, self.update = worker, engine.generate, number + 1
        engine.lock = self  # type: ignore[assignment]
        self.news: Any = None  # of `Starts`

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Releases the worker's lock inside the block, which no check of its health takes for one that hangs."""
        self.worker.waiting.add(self.update - 1)
        with super().waiting():
            yield

    def acquire(self) -> None:
        """Takes the worker's lock. A collection that waits for it does not hang, as who has it must go on."""
        self.worker.waiting.add(self.update - 1)
        self.worker.engine.lock.acquire()
        self.progressed()
        self.worker.waiting.discard(self.update - 1)

    def release(self) -> None:
        self.worker.engine.lock.release()

    def progressed(self) -> None:
        self.sampler.seen()

    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        """The present predictions of a critic. While the collection is played, the trainer gives them when it draws
        the next collection."""
        with self.waiting():
            if self.critics or not inputs:
                return super().values(inputs, critic)
            return self.worker.asked(critic, inputs)

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """The log-probabilities that the sampler reported; for replies that were not sampled, those of the server.

        Raises:
            ValueError: another policy is requested.
        """
        missing = [one for one in decisions if one.logprobs is None]
        ask = getattr(self.worker.sampler, "logprobs", None)
        if policy != "current" or not missing or ask is None:
            return super().logprobs(decisions, policy)
        told, most = list[tuple[float, ...]](), self.worker.max_concurrent
        with self.waiting():
            for first in range(0, len(missing), most):
                futures = [ask(one.role, one.context_ids, one.action_ids) for one in missing[first : first + most]]
                told += [future.result() for future in futures]
        found = iter(told)
        return [next(found) if one.logprobs is None else one.logprobs for one in decisions]


@dataclass(kw_only=True)
class UnderWay:
    """A collection that is not credited yet.

    Attributes:
        tasks: the positions of its tasks.
        memory: the method's, which its collector reads.
        known: the replies so far.
        starts: drawn for its tasks, by their places; `None` before.
        collected: its rollouts and context, once all are played.
        claimed: whether a thread credits it.
        seen: time of the last progress, in seconds of the monotonic clock.
    """

    number: int
    tasks: tuple[int, ...]
    memory: Any = None
    known: dict[Place, Known] = field(default_factory=dict)
    starts: Mapping[int, Start] | None = None
    collected: tuple[RolloutBatch, CollectionContext] | None = None
    claimed: bool = False
    begun: float = 0.0
    seen: float = 0.0

    def touch(self) -> None:
        self.seen = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Plain values, without rollouts."""
        known = [[*place, *reply] for place, reply in self.known.items()]
        values = {"number": self.number, "tasks": list(self.tasks), "memory": to_plain(self.memory), "known": known}
        return {**values, "starts": self.starts and {place: asdict(one) for place, one in self.starts.items()}}
