"""A bounded cache of live things that are found again by what they have been through."""

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

_MANY = 10_000  # replayed steps, from which on their share is worth a warning
_PATIENCE = 5.0  # seconds to wait for a first place where there is none


class FullError(ConnectionError):
    """What opens worlds has no room for another one now."""


@dataclass(eq=False)
class Session:
    """A live world, while somebody has it.

    Attributes:
        world: itself.
        fresh: whether nobody has given it back yet.
    """

    world: Any
    fresh: bool = True


_Kept = OrderedDict[Hashable, list[Session]]


class Sessions:
    """Live worlds: each is with one caller, or kept under the key of where it stands, or free for another task.

    At most `limit` are live. Where one is wanted and there is no room, the one kept that was used longest ago is
    handed out, those that were left behind as copies first; where all are with callers, the next waits until one is
    given back. Safe in threads, as long as a caller gives back what it has before it asks for another.

    Where worlds are opened elsewhere and there is no room for as many (`FullError`), the limit comes down to those
    that are live.

    Args:
        limit: the most that are live, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.costs: Counter[str] = Counter(
            worlds_opened=0, world_steps=0, replayed_steps=0, restored=0, lost=0, diverged=0
        )
        self._at: _Kept = OrderedDict()  # where somebody will probably go on; several where several went the same way
        self._behind: _Kept = OrderedDict()  # where somebody may begin once more
        self._free: list[Session] = []
        self._live = 0
        self._warned = False
        self._changed = threading.Condition()
        weakref.finalize(self, _close_all, os.getpid(), self._at, self._behind, self._free)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit,)  # what is live, and what was spent, stays in this process

    def count(self, what: str) -> None:
        """Adds one to a cost; says so once where states are restored more than they are left."""
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
        """The session kept at `key`, which is the caller's from now on; `None` if there is none."""
        with self._changed:
            return next((_popped(kept, key) for kept in (self._at, self._behind) if key in kept), None)

    def any(self, open_world: Callable[[], Any]) -> Session:
        """A session that stands anywhere, the caller's from now on.

        Args:
            open_world: makes a new world; `close()` of what it returns releases it.

        Raises:
            FullError: there is no room for a single one.
        """
        patience = time.monotonic() + _PATIENCE
        while True:
            with self._changed:
                while not (self._free or self._live < self.limit or self._behind or self._at):
                    self._changed.wait()
                if self._free:
                    return self._free.pop()
                if self._live >= self.limit:
                    return _popped(self._behind or self._at)
                self._live += 1
            try:
                session = self._made(open_world)
            except FullError:
                if self._lower() or time.monotonic() < patience:
                    continue
                raise
            self.count("worlds_opened")
            return session

    def copy(self, session: Session) -> Session | None:
        """A second session that stands where the caller's does; `None` if one that others go on with had to go."""
        with self._changed:
            given_up = None
            if self._live < self.limit:
                self._live += 1
            elif self._free:
                given_up = self._free.pop()
            elif self._behind:
                given_up = _popped(self._behind)
            else:
                return None
        if given_up is not None:
            _closed(given_up)
        return self._made(session.world.copy)

    def give(self, session: Session, key: Hashable | None, behind: bool = False) -> None:
        """Gives a session back.

        Args:
            session: the caller's.
            key: where it stands now; `None` if nobody can go on there.
            behind: whether it is the one that was copied.
        """
        session.fresh = False
        with self._changed:
            kept = self._behind if behind else self._at
            if key is None or (behind and key in kept):
                self._free.append(session)
            else:
                kept.setdefault(key, []).append(session)
                kept.move_to_end(key)
            self._changed.notify()

    @contextmanager
    def held(self, session: Session) -> Iterator[Any]:
        """The world of a caller's session; what is raised within closes it, as nobody knows where it stands then."""
        try:
            yield session.world
        except BaseException:
            self.discard(session)
            raise

    def discard(self, session: Session) -> None:
        """Closes a session of the caller, of which nobody knows where it stands."""
        with self._changed:
            self._live -= 1
            self._changed.notify()
        _closed(session)

    def close(self) -> None:
        """Closes all that are not with a caller."""
        with self._changed:
            gone = _all(self._at, self._behind, self._free)
            for kept in (self._at, self._behind, self._free):
                kept.clear()
            self._live -= len(gone)
            self._changed.notify_all()
        for session in gone:
            session.world.close()

    def _lower(self) -> bool:
        """Lowers the limit to what is live; False, after a moment, where nothing is."""
        with self._changed:
            if 0 < self._live < self.limit:
                logger.warning("There is room for %d live worlds, not for %d.", self._live, self.limit)
                self.limit = self._live
            if self._live:
                return True
        time.sleep(0.1)  # the place of one that was closed or lost is free a little later
        return False

    def _made(self, make: Callable[[], Any]) -> Session:
        """The session of a new world, for which there is a place already."""
        try:
            return Session(make())
        except BaseException:
            with self._changed:
                self._live -= 1
                self._changed.notify()
            raise


def _closed(session: Session) -> None:
    with suppress(Exception):  # broken or in the way: what is wrong with it, its own caller has heard
        session.world.close()


def _popped(kept: _Kept, key: Hashable | None = None) -> Session:
    """A session that is kept at `key`, or at the key used longest ago; no longer kept."""
    key = next(iter(kept)) if key is None else key
    session = kept[key].pop()
    if not kept[key]:
        del kept[key]
    return session


def _all(at: _Kept, behind: _Kept, free: list[Session]) -> list[Session]:
    return [*free, *(session for kept in (at, behind) for sessions in kept.values() for session in sessions)]


def _close_all(process: int, at: _Kept, behind: _Kept, free: list[Session]) -> None:
    """Closes what a cache that nobody has any more still holds, in the process that opened it."""
    if process == os.getpid():
        for session in _all(at, behind, free):
            _closed(session)
