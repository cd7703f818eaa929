"""Waiting: how much longer collections take than generation alone, at as many requests, on a simulated clock.

The walks, collectors, credit, threads and queues are the real ones (`hf_credit.trainers.asynchronous.worker`). Time is
simulated: a reply takes as long as it is drawn to, and so does a step of the world. A server has so many places, in
which replies are as fast as they would be alone. The trainer draws every collection at once. Walks take 4 to 12
decisions; a reply takes 10 s in the median, log-normal with a sigma of 0.5, and one in 50 takes 100 s.

`times generation alone` is the time that the server's places were there over the time that they were busy.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from common import arguments, report_of_one_thread

from hf_credit import methods
from hf_credit.collectors import Group
from hf_credit.methods import Method
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine, Generation, Interaction, LocalContext, Request
from hf_credit.trainers.asynchronous.worker import Worker

MEDIAN, SIGMA, LONG = 10.0, 0.5, 10.0
TEXT = (
    "{episodes} walks of 4 to 12 decisions; replies of 10 s in the median, one in 50 of 100 s; a server that works at "
    "{places} replies at a time. Time is simulated, everything else is real. The aim is 1.15 with several collections "
    "under way, without and with steps of the world that take 2 s."
)


def duration(seed: int) -> float:
    """Of a reply, in seconds."""
    draws = random.Random(seed)
    return MEDIAN * (LONG if draws.random() < 1 / 50 else draws.lognormvariate(0, SIGMA))


@dataclass(frozen=True, kw_only=True)
class Walk:
    name: int
    turns: int
    turn: int = 0


class Walks(Interaction[Walk]):
    """Asks for 4 to 12 replies.

    Args:
        step: what happens while the world steps.
        side_by_side: as in `hf_credit.rollouts.capabilities.Batched`.
    """

    replayable = False  # each walk begins anew

    def __init__(self, step: Callable[[], None], side_by_side: int = 1) -> None:
        self.step = step
        self.side_by_side = side_by_side
        self.begun = self.looked = 0
        self._draws = itertools.count()

    def start(self, task: Mapping[str, Any], seed: int) -> Walk:
        self.begun += 1
        return Walk(name=task["name"], turns=random.Random(next(self._draws)).randint(4, 12))

    def pending(self, state: Walk) -> tuple[Request, ...]:
        self.looked += 1
        said = [{"role": "user", "content": f"{state.name} {state.turn}"}]
        return () if state.turn == state.turns else (Request(role="walker", messages=said),)

    def advance(self, state: Walk, replies: Sequence[str]) -> Walk:
        self.step()
        return replace(state, turn=state.turn + 1)

    def outcome(self, state: Walk) -> float:
        return float(state.turns % 2)


class Simulated:
    """A server and a world whose time passes only when everybody waits.

    Args:
        world: how long a step takes, in seconds.
    """

    seeded = True

    def __init__(self, world: float) -> None:
        self.world = world
        self.now = self.busy = 0.0
        self.delivered = self.stepping = self.stepped = 0
        self._coming: list[tuple[float, int, Callable[[], None], bool]] = []
        self._order = itertools.count()
        self._changing = threading.Lock()

    def submit(self, role: str, context: Sequence[int], seed: int | None) -> Future[Generation]:
        future: Future[Generation] = Future()
        seconds = duration(seed or 0)
        self.busy += seconds
        self._after(seconds, partial(self._deliver, future), of_server=True)
        return future

    def step(self) -> None:
        """Called by a walk whose world steps."""
        if self.world:
            over = threading.Event()
            self._after(self.world, partial(self._end_step, over))
            with self._changing:
                self.stepping += 1
            over.wait()
        else:
            with self._changing:
                self.stepping += 1
                self.stepped += 1

    def ahead(self) -> float:
        """How much of what keeps the server busy is still to come, in seconds."""
        return sum(over - self.now for over, _, _, of_server in self._coming if of_server)

    def pass_time(self) -> None:
        """The next thing happens."""
        with self._changing:
            self.now, _, happen, _ = heapq.heappop(self._coming)
        happen()

    def end_steps(self) -> None:
        """Ends every step of the world, for which a worker that stops would wait."""
        for _, _, happen, of_server in list(self._coming):
            if not of_server:
                happen()

    def _after(self, seconds: float, happen: Callable[[], None], of_server: bool = False) -> None:
        with self._changing:
            heapq.heappush(self._coming, (self.now + seconds, next(self._order), happen, of_server))

    def _deliver(self, future: Future[Generation]) -> None:
        self.delivered += 1
        future.set_result(Generation(ids=(5, 6), logprobs=(-1.0, -1.0)))

    def _end_step(self, over: threading.Event) -> None:
        self.stepped += 1
        over.set()


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A collector that says when it has begun."""

    gives: ClassVar[frozenset[str]] = Group.gives

    inner: Group
    begun: list[int]

    def __call__(self, rows: Any, context: Any, memory: Any) -> Any:
        self.begun.append(context.update)
        return self.inner(rows, context, memory)


def several(chat: Chat, options: argparse.Namespace, walks_each: int, concurrent: int, world: float) -> float:
    """How many times as long as generation alone, with so many collections of so many walks under way."""
    clock = Simulated(world)
    walks = Walks(clock.step, side_by_side=10_000 if world else 1)
    begun: list[int] = []
    rloo = methods.make("rloo", group_size=8)
    worker = Worker(
        walks,
        Method(name="entered", collector=Entered(inner=Group(size=8), begun=begun), estimator=rloo.estimator),
        chat,
        clock,
        [{"name": name} for name in range(64)],
        tasks_per_collection=walks_each // 8,
        concurrent_collections=concurrent,
        max_concurrent=options.places,
        max_finished=10_000,
    )

    def wait() -> None:
        while not (
            len(worker._under_way) == concurrent
            and len(begun) == worker._next_number
            and clock.stepping == clock.delivered
            and walks.looked - walks.begun == clock.stepped
            and not worker._running.locked()
        ):
            worker.check_health(60)
            time.sleep(5e-5)

    worker.start()
    finished = 0
    while finished < options.episodes // walks_each:
        wait()
        clock.pass_time()
        while not worker.collections.empty():
            one = worker.collections.get()
            assert not isinstance(one, Exception), one
            worker.trained(one.number)
            finished += 1
    wait()
    ahead = clock.ahead()
    clock.end_steps()
    worker.stop()
    return options.places * clock.now / (clock.busy - ahead)


def rounds(chat: Chat, options: argparse.Namespace, walks_each: int, world: float) -> float:
    """The same for one collection after the other, in rounds."""
    seeds = itertools.count()
    spent = busy = 0.0

    def generate(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        nonlocal spent, busy
        places = [0.0] * options.places
        for _ in contexts:
            seconds = duration(next(seeds))
            busy += seconds
            heapq.heapreplace(places, places[0] + seconds)
        spent += max(places) + world
        return [Generation(ids=(5, 6), logprobs=(-1.0, -1.0))] * len(contexts)

    for number in range(options.episodes // walks_each):
        engine = Engine(Walks(lambda: None), chat, generate, max_concurrent=options.places)
        context = LocalContext(engine, seed=number)
        Group(size=8)([{"name": name} for name in range(walks_each // 8)], context)
    return options.places * spent / busy


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    chat = Chat(tokenizer_of(["0 1 2 3 4 5 6 7 8 9"]))
    cases: list[tuple[str, int, int, Callable[..., float]]] = []
    for walks in (options.places, 4 * options.places):
        cases.append(("in rounds", walks, 1, partial(rounds, chat, options, walks)))
        for concurrent in (1, 2, 3, 4) if walks == options.places else (1, 2):
            one = partial(several, chat, options, walks, concurrent)
            cases.append(("as walks need them", walks, concurrent, one))
    return [
        {
            "replies are asked for": how,
            "walks of a collection": walks,
            "collections under way": concurrent,
            "walks a place": concurrent * walks // options.places,
            "times generation alone": run(world=0.0),
            "with steps of 2 s": run(world=2.0),
        }
        for how, walks, concurrent, run in cases
    ]


def main(given: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__ or "", places=64, episodes=1024)
    report_of_one_thread(parser, given, "asynchronous", compare, TEXT)


if __name__ == "__main__":
    main()
