"""A bounded cache of live worlds, keyed by their history."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

_MANY = 10_000  # replayed steps before a large share of them is worth a warning
_PATIENCE = 5.0  # seconds to retry while not a single world can be opened


class FullError(ConnectionError):
    """A server takes no further world for now."""


@dataclass(eq=False)
class Session:
    """A live world; `fresh` if it was never given back."""

    world: Any
    fresh: bool = True


_Kept = OrderedDict[Hashable, list[Session]]


class Sessions:
    """A pool of live worlds. Each is held by one caller, kept under the key of its history, or free for another task.

    At most `limit` are live. At the limit, a caller gets the kept session that was used longest ago; if callers hold
    them all, it waits until one is given back. Thread-safe, as long as a caller gives back its session before it asks
    for another. If opening a world raises `FullError`, the limit falls to the number of live sessions.

    Args:
        limit: the most live sessions, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.costs = Counter(worlds_opened=0, world_steps=0, replayed_steps=0, restored=0, lost=0, diverged=0)
        self._at: _Kept = OrderedDict()  # several sessions at one key if episodes are equal so far
        self._free: list[Session] = []
        self._live = 0
        self._warned = False
        self._changed = threading.Condition()
        weakref.finalize(self, _close_all, os.getpid(), self._at, self._free)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit,)  # sessions and costs stay in this process

    def count(self, what: str) -> None:
        """Adds one to a cost; warns once if at least half of all steps were replays."""
        with self._changed:
            self.costs[what] += 1
            replayed, steps = self.costs["replayed_steps"], self.costs["world_steps"]
            if self._warned or replayed < _MANY or 2 * replayed < steps:
                return
            self._warned = True
        logger.warning(
            "%d of %d steps of worlds were replays that restore a state; raise sessions, %d now, to the number of "
            "episodes under way.",
            replayed,
            steps,
            self.limit,
        )

    def take(self, key: Hashable) -> Session | None:
        """Hands the session kept at `key` to the caller; `None` if there is none."""
        with self._changed:
            return _popped(self._at, key) if key in self._at else None

    def any(self, open_world: Callable[[], Any]) -> Session:
        """Hands any session to the caller, whatever its history.

        Args:
            open_world: opens a new world, which has the method `close`.

        Raises:
            FullError: not a single world can be opened.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            with self._changed:
                while not (self._free or self._live < self.limit or self._at):
                    self._changed.wait()
                if self._free:
                    return self._free.pop()
                if self._live >= self.limit:
                    return _popped(self._at)
                self._live += 1
            try:
                session = Session(open_world())
            except BaseException as error:
                with self._changed:
                    self._live -= 1
                    self._changed.notify()
                if isinstance(error, FullError) and (self._lower() or time.monotonic() < deadline):
                    continue
                raise
            self.count("worlds_opened")
            return session

    def give(self, session: Session, key: Hashable | None) -> None:
        """Takes a session back from the caller.

        Args:
            key: its history; `None` if no episode can continue there.
        """
        session.fresh = False
        with self._changed:
            if key is None:
                self._free.append(session)
            else:
                self._at.setdefault(key, []).append(session)
                self._at.move_to_end(key)
            self._changed.notify()

    @contextmanager
    def held(self, session: Session) -> Iterator[Any]:
        """The world of a session; an exception within closes the session, as its state is unknown then."""
        try:
            yield session.world
        except BaseException:
            self.discard(session)
            raise

    def discard(self, session: Session) -> None:
        """Closes a session that the caller holds."""
        with self._changed:
            self._live -= 1
            self._changed.notify()
        _close(session)

    def close(self) -> None:
        """Closes every session that no caller holds."""
        with self._changed:
            unheld = _all(self._at, self._free)
            self._at.clear()
            self._free.clear()
            self._live -= len(unheld)
            self._changed.notify_all()
        for session in unheld:
            _close(session)

    def _lower(self) -> bool:
        """Lowers the limit to the number of live sessions; returns False, after a moment, if there are none."""
        with self._changed:
            if 0 < self._live < self.limit:
                logger.warning("The server takes %d live worlds, not %d.", self._live, self.limit)
                self.limit = self._live
            if self._live:
                return True
        time.sleep(0.1)  # a server notices a little later that a session was closed or lost
        return False


def _close(session: Session) -> None:
    with suppress(Exception):  # the world may be broken, which its caller knows
        session.world.close()


def _popped(kept: _Kept, key: Hashable | None = None) -> Session:
    """Removes and returns a session kept at `key`, by default at the key used longest ago."""
    key = next(iter(kept)) if key is None else key
    session = kept[key].pop()
    if not kept[key]:
        del kept[key]
    return session


def _all(at: _Kept, free: list[Session]) -> list[Session]:
    return [*free, *(session for sessions in at.values() for session in sessions)]


def _close_all(process: int, at: _Kept, free: list[Session]) -> None:
    """Closes the sessions of a collected cache, in the process that opened them."""
    if process == os.getpid():
        for session in _all(at, free):
            _close(session)
