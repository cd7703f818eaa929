"""Plays and credits collections on the main process while the trainer learns, each in a thread."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from hf_credit.collectors import RolloutBatch
from hf_credit.environments.randomness import stream
from hf_credit.methods import DecisionCredit, Method
from hf_credit.methods.base import credit_in_loss, trained
from hf_credit.methods.memory import from_plain, to_plain
from hf_credit.rollouts import (
    Chat,
    Engine,
    Interaction,
    LocalContext,
    by_episode,
    decision_rows,
    refuse_total_failure,
)
from hf_credit.rollouts.capabilities import Batched, Costs
from hf_credit.rollouts.failures import check_replays, in_one_line
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.rollouts.samplers import SubmittingSampler
from hf_credit.trainers.asynchronous.collection import (
    Collection,
    CollectionContext,
    CreditedRollouts,
    Question,
    UnderWay,
)
from hf_credit.trainers.asynchronous.requests import Desk, Known, Place, Recorded, Stopped
from hf_credit.trainers.metrics import summaries_of, update_metrics
from hf_credit.trainers.starts import Start, Starts
from hf_credit.validators import whole_number

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.02
_STOP_SECONDS = 5.0
_MOST_WALKS = 4096  # episodes of a collection in progress; `max_concurrent` bounds the requests


@dataclass(eq=False, repr=False)
class Worker:
    """Plays collections with a served policy, credits them, and keeps those that are not trained on yet.

    Collectors run as in synchronous training, `concurrent_collections` of them in parallel, each in a thread. Code of
    collectors, methods, tasks and templates holds one lock, and releases it while it waits for replies, for a judge,
    or for worlds with parallel steps (`Batched.side_by_side`), so it never runs twice at a time. The steps of a slow
    world without parallel steps follow one another over all collections: with steps of s seconds, a run makes at most
    1 / s of them a second.

    Methods with memory credit collections in the order of their tasks; others credit them as they finish. With critics
    the trainer has a collection credited when it draws it, by `credited`. No collection starts while `max_finished`
    wait to be drawn. All episodes of a collection are in progress, or its share of the maximum number of live worlds
    (`Batched.most_live`, or `side_by_side`). The sampler has at most `max_concurrent` requests, those of the oldest
    collection first. With three episodes for each of them it is hardly ever idle.

    An error in code of a method or a task, and a collection in which every episode failed, become an exception in
    `collections`, which the trainer raises.

    `state` holds everything that is not trained on yet, with the replies so far. After `load_state` known replies are
    returned again, and only pending ones are sampled anew, with the same seed. A world, collector or method that does
    not repeat itself makes other requests, and gets new replies from there on.

    It implements TRL's `RolloutWorkerProtocol`.

    Args:
        interaction: the Interaction to play, before the method's `wrap`.
        method: without a frozen copy of the policy.
        chat: renders messages to tokens.
        sampler: replies to single requests, with log-probabilities. Its `update_model_version`, if it has one, is
            called before a new version counts.
        tasks: task rows.
        tasks_per_collection: number of task rows of a collection.
        concurrent_collections: number of collections in progress.
        max_concurrent: maximum number of parallel requests to the sampler.
        max_finished: number of finished collections at which no further one starts.
        max_context_tokens: as in `Engine`.
        mask_truncated_completions: whether replies without an end token are left out of the loss.
        roles_apart: whether roles learn in updates of their own, so that each has a loss of its own.
        shuffle: whether each pass over the tasks has a new order.
        seed: of the order of tasks and of all random draws.
        starts: makes the `hf_credit.trainers.starts.Starts` of the Interaction and the chat; `None` for first states.

    Attributes:
        engine: plays, with the sampler of each collection in turn.
        collections: finished collections, or an exception to raise.

    Raises:
        ValueError: a number is too low, or the method does not fit the Interaction.
    """

    interaction: Interaction[Any]
    method: Method
    chat: Chat
    sampler: SubmittingSampler
    tasks: Sequence[Mapping[str, Any]]
    _: KW_ONLY
    tasks_per_collection: int
    concurrent_collections: int = 4
    max_concurrent: int = 256
    max_finished: int = 1
    max_context_tokens: int | None = None
    mask_truncated_completions: bool = False
    roles_apart: bool = False
    shuffle: bool = True
    seed: int = 0
    starts: Callable[[Interaction[Any], Chat], Starts] | None = None

    def __post_init__(self) -> None:
        for name in ("tasks_per_collection", "concurrent_collections", "max_concurrent", "max_finished"):
            whole_number(name, getattr(self, name), 1)
        self.interaction = self.method.wrapped(self.interaction)
        self.method = self.method.bind(self.interaction)
        self.version = 0
        self.desk = Desk(self.sampler, self.max_concurrent, lambda: self.version)
        self._running = threading.Lock()
        batched = Batched(self.interaction)
        live = batched.side_by_side if batched.most_live is None and batched.side_by_side > 1 else batched.most_live
        self.engine: Engine[Any] = Engine(
            self.interaction,
            self.chat,
            self.sampler,
            max_concurrent=_MOST_WALKS if live is None else max(1, live // (self.concurrent_collections + 1)),
            max_context_tokens=self.max_context_tokens,
            lock=self._running,
        )
        self.curriculum = None if self.starts is None else self.starts(self.interaction, self.chat)
        self.collections: queue.Queue[Collection | Question | Exception] = queue.Queue()
        self.rollout_buffer: queue.Queue[Any] = self.collections
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self.memory = self.method.memory
        self.waiting: set[int] = set()  # collections that wait for others than the sampler, or for their turn
        self._changing = threading.Lock()  # held while what `state` holds changes
        self._next_task = 0
        self._next_number = 0
        self._again: deque[tuple[int, ...]] = deque()  # tasks of dropped collections
        self._restored: deque[UnderWay] = deque()
        self._under_way: dict[int, UnderWay] = {}
        self._played: dict[int, UnderWay] = {}  # in `collections`, without credit yet
        self._finished: dict[int, tuple[Collection, tuple[int, ...]]] = {}  # not trained on yet, with its tasks
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._failed: BaseException | None = None
        self._warned = False  # of failed replays
        self._order: tuple[int, Sequence[int]] = (-1, ())

    # TRL's protocol -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts to collect, after the sampler's `wait`, if it has one."""
        if hasattr(self.sampler, "wait"):
            self.sampler.wait()
        for number in range(self.concurrent_collections):
            thread = threading.Thread(target=self._collect, name=f"collections-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stops within seconds, even while requests or worlds hang; `state` still holds what is in progress."""
        self._stopping.set()
        self.desk.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def update_model_version(self, version: int) -> None:
        """Sets the version of the policy that is served from now on."""
        if hasattr(self.sampler, "update_model_version"):
            self.sampler.update_model_version(version)
        self.version = version  # afterwards, so that no reply counts as newer than it is

    def check_health(self, stale_after_s: float) -> None:
        """Raises an error if the worker failed or hangs.

        Args:
            stale_after_s: maximum time without progress of a collection that waits for no reply, in seconds.

        Raises:
            RuntimeError: the worker failed, or a collection made no progress.
        """
        if self._failed is not None:
            raise RuntimeError(
                f"the worker must play and credit episodes without errors, got {type(self._failed).__name__}: "
                f"{self._failed}; fix the code that the traceback names."
            ) from self._failed
        if self._stopping.is_set():
            raise RuntimeError(
                "a worker must not have stopped before its trainer, got one that has; make another trainer."
            )
        now, asking = time.monotonic(), self.desk.asking() | self.waiting  # those asked have limits of their own
        with self._changing:
            playing = [one for one in self._under_way.values() if one.collected is None and one.number not in asking]
        hanging = [one for one in playing if now - one.seen > stale_after_s]
        if hanging:
            raise RuntimeError(
                f"a collection must make progress within {stale_after_s:g} s, got none for "
                f"{now - hanging[0].seen:.0f} s in collection {hanging[0].number}; fix the environment or the method "
                f"that hangs:\n{self._where()}"
            )

    # Calls of the trainer -----------------------------------------------------------------------------------------

    def trained(self, number: int) -> None:
        """Forgets a collection, on which the trainer has made its optimizer step."""
        with self._changing:
            del self._finished[number]

    def credited(self, number: int, critics: Mapping[str, Any], learning: bool) -> Collection:
        """Credits a collection of a method with critics, which was not before; the caller has the engine's lock.

        Args:
            critics: functions from inputs to predictions, by name.
            learning: whether the policy learns; otherwise all credit is 0.
        """
        with self._changing:
            finished = self._played.pop(number)
        assert finished.collected is not None
        finished.collected[1].critics = dict(critics)
        return self._credited(finished, learning)

    def dropped(self, number: int) -> None:
        """Queues the tasks of a collection that was too old; they are played again under a new number.

        Where it was credited before, the method's memory and the horizons of starts have learned from it.
        """
        with self._changing:
            played = self._played.pop(number, None)
            self._again.append(self._finished.pop(number)[1] if played is None else played.tasks)

    def state(self) -> dict[str, Any]:
        """Everything that is not trained on yet, as plain values and tensors."""
        with self._changing:
            under_way = [*self._under_way.values(), *self._played.values(), *self._restored]
            return {
                "next_task": self._next_task,
                "next_number": self._next_number,
                "again": [list(tasks) for tasks in self._again],
                "under_way": [one.state() for one in sorted(under_way, key=lambda one: one.number)],
                "finished": [
                    {"collection": one.state(), "tasks": list(tasks)}
                    for _, (one, tasks) in sorted(self._finished.items())
                ],
                "memory": to_plain(self.memory),
                "version": self.version,
                **({} if self.curriculum is None else {"starts": self.curriculum.state()}),
            }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave, before `start`."""
        like = self.method.memory
        self._next_task, self._next_number = state["next_task"], state["next_number"]
        self._again = deque(tuple(tasks) for tasks in state["again"])
        self._restored = deque(
            UnderWay(
                number=one["number"],
                tasks=tuple(one["tasks"]),
                memory=from_plain(one["memory"], like),
                known={Place(*reply[:4]): Known(*reply[4:]) for reply in one["known"]},
                starts=(drawn := one.get("starts")) and {place: Start(**start) for place, start in drawn.items()},
            )
            for one in state["under_way"]
        )
        self.memory = from_plain(state["memory"], like)
        if self.curriculum is not None and "starts" in state:
            self.curriculum.load_state(state["starts"])
        self.version = state["version"]
        for one in state["finished"]:
            collection = Collection.of(one["collection"])
            self._finished[collection.number] = collection, tuple(one["tasks"])
            self.collections.put(collection)

    def evaluated(self, interaction: Interaction[Any], rows: Sequence[Mapping[str, Any]]) -> RolloutBatch:
        """Plays an evaluation with the served policy, at the same time as the collections; no ledger counts it. The
        caller has the engine's lock, which is released meanwhile.

        Args:
            rows: task rows.
        """
        engine = self.engine.of(interaction)
        engine.max_concurrent = min(engine.max_concurrent, self.max_concurrent)
        return self.method.evaluation(rows, LocalContext(engine, seed=self.seed), self.memory)

    def asked(self, critic: str, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """The predictions of a critic, by the trainer once it draws the next collection."""
        future: Future[list[tuple[float, ...]]] = Future()
        self.collections.put(Question(critic=critic, inputs=inputs, predictions=future))
        while not wait([future], _POLL_SECONDS).done:
            if self._stopping.is_set():
                raise Stopped
        return future.result()

    # Collecting ---------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """The loop of each thread."""
        try:
            while (collection := self._next()) is not None:
                context = self._context(collection)
                context.acquire()
                try:
                    self._play(collection, context)
                finally:
                    context.release()
        except Stopped:
            pass
        except BaseException as error:
            self._failed = error
            self._stopping.set()
            self.desk.stop()
            self.collections.put(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _next(self) -> UnderWay | None:
        """The next collection to play, once `max_finished` allows it; `None` when the worker stops."""
        while not self._stopping.is_set():
            with self._changing:
                room = self.collections.qsize() < self.max_finished
                if room and len(self._under_way) < 2 * self.concurrent_collections:
                    collection = self._restored.popleft() if self._restored else self._fresh()
                    collection.begun = time.monotonic()
                    collection.touch()
                    self._under_way[collection.number] = collection
                    return collection
            self._stopping.wait(_POLL_SECONDS)
        return None

    def _fresh(self) -> UnderWay:
        if self._again:
            tasks = self._again.popleft()
        else:
            tasks = tuple(range(self._next_task, self._next_task + self.tasks_per_collection))
            self._next_task += self.tasks_per_collection
        number, self._next_number = self._next_number, self._next_number + 1
        return UnderWay(number=number, tasks=tasks, memory=self.memory)

    def _row(self, place: int) -> Mapping[str, Any]:
        """The task at a position of the endless sequence of passes."""
        number, index = divmod(place, len(self.tasks))
        if not self.shuffle:
            return self.tasks[index]
        if self._order[0] != number:
            order = list(range(len(self.tasks)))
            stream(self.seed, "tasks", number).shuffle(order)
            self._order = (number, order)
        return self.tasks[self._order[1][index]]

    def _context(self, one: UnderWay) -> CollectionContext:
        sampler = Recorded(self.desk, one.number, self.seed, one.known, self._changing, one.touch)
        return CollectionContext(self, self.engine.sampled_by(sampler), one.number)

    def _play(self, one: UnderWay, context: CollectionContext) -> None:
        rows = [self._row(place) for place in one.tasks]
        play = self.method.collector
        if self.curriculum is None:
            collected = play(rows, context, one.memory)
        else:
            one.starts = self.curriculum.drawn(rows, context) if one.starts is None else one.starts
            collected, context.news = self.curriculum.played(one.starts, rows, context, play, one.memory)
        refuse_total_failure(collected.episodes)
        context.metrics.setdefault("time/rollouts", []).append(time.monotonic() - one.begun)
        with self._changing:
            one.collected = (collected, context)
        while (ready := self._ready(one)) is not None:
            self._finish(ready)

    def _ready(self, one: UnderWay) -> UnderWay | None:
        """A collection that can be credited: the one just played or, for a method with memory, the oldest."""
        with self._changing:
            if self.method.memory is None:
                return one if one.number in self._under_way else None
            left = [*self._under_way.values(), *self._restored]
            oldest = min(left, key=lambda other: other.number, default=None)
            if oldest is None or oldest.collected is None or oldest.claimed:
                return None
            oldest.claimed = True  # others come here while its estimator waits
            return oldest

    def _finish(self, one: UnderWay) -> None:
        """Credits a collection, or leaves it to the trainer where critics predict."""
        if not self.method.critics:
            self.collections.put(self._credited(one))
            return
        assert one.collected is not None
        _, context = one.collected
        with self._changing:
            self._played[one.number] = self._under_way.pop(one.number)
            version = context.sampler.oldest(self.version)
            self.collections.put(Collection(number=one.number, version=version, ledger=context.ledger))

    def _credited(self, one: UnderWay, learning: bool = True) -> Collection:
        assert one.collected is not None
        collected, context = one.collected
        begun = time.monotonic()
        credit = self.method.estimator(collected, context, self.memory)
        latest = context.failures.latest
        self._warned = check_replays(context.kept, in_one_line(latest) if latest else None, self._warned)
        ends = self.chat.end_tokens if self.mask_truncated_completions else None
        credit = replace(credit, decisions=trained(collected, credit.decisions, ends))
        role_of = {one.id: one.role * self.roles_apart for episode in collected.episodes for one in episode.decisions}
        found: dict[str, DecisionCredit] = {}
        for role in set(role_of.values()):
            own_credit = {name: value for name, value in credit.decisions.items() if role_of[name] == role}
            found |= credit_in_loss(collected, replace(credit, decisions=own_credit))
        if not learning:
            found = dict.fromkeys(found, 0.0)
        episodes = collected.episodes
        advantages = by_episode(episodes, found)
        rows = [
            row
            for episode, own in zip(episodes, advantages, strict=True)
            for row in decision_rows(episode.decisions, own)
        ]
        summaries = summaries_of(collected, advantages, self.chat.end_tokens)
        context.metrics.setdefault("time/credit", []).append(time.monotonic() - begun)
        metrics = {
            **update_metrics(summaries),
            **context.logged(),
            **{f"world/{name}": float(value) for name, value in Costs(self.interaction).costs().items()},
        }
        collection = Collection(
            number=one.number,
            version=context.sampler.oldest(self.version),
            rows=tuple(rows),
            metrics=metrics,
            ledger=context.ledger,
            credited=CreditedRollouts(collected=collected, credit=credit, advantages=advantages),
        )
        with self._changing:
            self.memory = credit.memory
            if self.curriculum is not None:
                self.curriculum.learn([context.news])
            self._under_way.pop(one.number, None)
            self._finished[one.number] = collection, one.tasks
        return collection

    def _where(self) -> str:
        """The stack traces of the worker's threads."""
        frames = sys._current_frames()
        return "\n".join(
            f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
            for thread in self._threads
            if thread.ident in frames
        )
