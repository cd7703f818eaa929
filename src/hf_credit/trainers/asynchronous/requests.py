"""Requests of several collections to one sampler: a bounded number in parallel, with replies kept for a restart."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from hf_credit.environments.randomness import derive
from hf_credit.rollouts import Context, Generation
from hf_credit.rollouts.samplers import SubmittingSampler


class Stopped(BaseException):
    """The worker stops, which ends every wait for a reply. Code of a method or a task must not catch it."""


class Place(NamedTuple):
    """Identifies a request of a collection: the first, second, ... with this role, context and seed.

    After a restart, collectors, methods and worlds that repeat themselves make the same requests, in any order.
    """

    role: str
    context: str  # a digest
    seed: int | None
    number: int


class Known(NamedTuple):
    """A reply that has arrived, and the version of the policy when it was requested."""

    version: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@dataclass(order=True)
class _Request:
    collection: int
    order: int
    request: tuple[str, Context, int] = field(compare=False)  # role, context and seed
    arrived: Callable[[Generation, int], None] = field(compare=False)
    reply: Future[Generation] = field(default_factory=Future, compare=False)
    asked: Future[Generation] | None = field(default=None, compare=False)


class Desk:
    """Forwards a bounded number of parallel requests to a sampler, those of the oldest collection first.

    Args:
        most: maximum number of parallel requests. With more episodes in progress, the sampler is never idle.
        version: returns the present version of the policy; called when a request is forwarded.
    """

    def __init__(self, sampler: SubmittingSampler, most: int, version: Callable[[], int]) -> None:
        self.sampler = sampler
        self.most = most
        self.version = version
        self.stopped = False
        self._changing = threading.Lock()
        self._waiting: list[_Request] = []
        self._order = itertools.count()
        self._passed_on: dict[int, _Request] = {}
        self._passing = threading.local()

    def asking(self) -> set[int]:
        """The collections that wait for a reply."""
        with self._changing:
            return {request.collection for request in (*self._passed_on.values(), *self._waiting)}

    def ask(
        self, collection: int, asked: tuple[str, Context, int], arrived: Callable[[Generation, int], None]
    ) -> Future[Generation]:
        """Returns the future of a reply.

        Args:
            collection: the number of the collection that makes the request.
            asked: role, context and seed, as for the sampler.
            arrived: called with the reply and its version, before the future has a result.
        """
        request = _Request(collection, next(self._order), asked, arrived)
        with self._changing:
            if not self.stopped:
                heapq.heappush(self._waiting, request)
        if self.stopped:
            raise Stopped
        self._pass_on()
        return request.reply

    def stop(self) -> None:
        """Ends all waiting with `Stopped`."""
        with self._changing:
            self.stopped = True
            left = [*self._passed_on.values(), *self._waiting]
            self._passed_on, self._waiting = {}, []
        for request in left:
            _set(request.reply, Stopped())
            if request.asked is not None:
                request.asked.cancel()

    def _pass_on(self) -> None:
        if getattr(self._passing, "on", False):  # a sampler that replies at once calls this from within
            return
        self._passing.on = True
        try:
            while (request := self._next()) is not None:
                version = self.version()
                try:
                    request.asked = self.sampler.submit(*request.request)
                except Exception as error:
                    request.asked = Future()
                    request.asked.set_exception(error)
                request.reply.add_done_callback(partial(_cancel, request.asked))
                request.asked.add_done_callback(partial(self._arrived, request, version))
        finally:
            self._passing.on = False

    def _next(self) -> _Request | None:
        with self._changing:
            while self._waiting and len(self._passed_on) < self.most:
                request = heapq.heappop(self._waiting)
                if not request.reply.cancelled():
                    self._passed_on[request.order] = request
                    return request
        return None

    def _arrived(self, request: _Request, version: int, future: Future[Generation]) -> None:
        with self._changing:
            waited_for = self._passed_on.pop(request.order, None) is not None
        if waited_for and not future.cancelled():
            error = future.exception()
            if error is None:
                request.arrived(future.result(), version)
            _set(request.reply, future.result() if error is None else error)
        self._pass_on()


@dataclass(eq=False, repr=False)
class Recorded:
    """The sampler of one collection, which keeps its replies: known ones are returned again, not sampled.

    Args:
        desk: forwards requests without a known reply.
        collection: its number.
        seed: of the run.
        known: the replies so far; new ones are added.
        changing: lock held while replies are added.
        seen: called at every request and every reply.
    """

    desk: Desk
    collection: int
    seed: int
    known: dict[Place, Known]
    changing: threading.Lock
    seen: Callable[[], None]

    def __post_init__(self) -> None:
        self.seeded = getattr(self.desk.sampler, "seeded", None)
        self.used: set[Place] = set()
        self._asked: Counter[tuple[str, str, int | None]] = Counter()

    def submit(self, role: str, context: Context, seed: int | None) -> Future[Generation]:
        self.seen()
        digest = hashlib.blake2b(array("q", context).tobytes(), digest_size=16).hexdigest()
        place = Place(role, digest, seed, self._asked[role, digest, seed])
        self._asked[role, digest, seed] += 1
        self.used.add(place)
        if (known := self.known.get(place)) is not None:
            there: Future[Generation] = Future()
            there.set_result(Generation(ids=known.ids, logprobs=known.logprobs))
            return there
        # Always with a seed: after a restart, a pending reply is drawn as it would have been.
        reply_seed = derive(self.seed, "reply", self.collection, *map(str, place)) >> 1 if seed is None else seed
        return self.desk.ask(self.collection, (role, context, reply_seed), partial(self._arrived, place))

    def _arrived(self, place: Place, reply: Generation, version: int) -> None:
        logprobs = None if reply.logprobs is None else tuple(reply.logprobs)
        with self.changing:
            self.known[place] = Known(version, tuple(reply.ids), logprobs)
        self.seen()

    def oldest(self, now: int) -> int:
        """The oldest version of any reply; `now`, that of the policy, without replies."""
        return min((self.known[place].version for place in self.used if place in self.known), default=now)


def _set(reply: Future[Generation], value: Generation | BaseException) -> None:
    """Sets the result of a reply, unless it was cancelled."""
    if not reply.set_running_or_notify_cancel():
        return
    if isinstance(value, BaseException):
        reply.set_exception(value)
    else:
        reply.set_result(value)


def _cancel(future: Future[Generation], reply: Future[Generation]) -> None:
    if reply.cancelled():
        future.cancel()
