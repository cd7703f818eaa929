"""What this process plays at the moment, for a line of progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

WITHIN = ("generating", "crediting", "learning")
"""The phases of an update."""


class Pulse:
    """Counts what all engines of this process play. Any thread may read it.

    Attributes:
        phase: what a training does: one of `WITHIN`, or such as `"saving"`.
        replies, tokens: that were sampled.
        ended, open: episodes that have ended, and those that run or wait.
    """

    def __init__(self) -> None:
        self.replies = self.tokens = self.ended = self.open = 0
        self._changing = threading.Lock()
        self._watched = False
        self.begin()

    @property
    def speed(self) -> str:
        """The sampled tokens per second, in words, since the update began or since it is watched."""
        return f"{(self.tokens - self._before[1]) / max(time.monotonic() - self._begun, 1e-3):.0f} tokens/s"

    def begin(self, phase: str = "") -> None:
        """Begins an update, an evaluation or the like: `str` counts from here on."""
        self.phase, self._begun, self._before = phase, time.monotonic(), (self.ended, self.tokens)

    def replied(self, lengths: Sequence[int]) -> None:
        """Counts sampled replies of these lengths in tokens."""
        self.replies += len(lengths)
        self.tokens += sum(lengths)

    def played(self, ended: int, opened: int) -> None:
        """Counts episodes that have ended, and the change in the number of those that run or wait."""
        with self._changing:
            self.ended += ended
            self.open += opened

    def __str__(self) -> str:
        """The phase, if there is one, and with episodes those that have ended of all so far, and tokens per second."""
        done, told = self.ended - self._before[0], [self.phase]
        if done or self.open:  # saving has neither episodes nor a speed
            told += [f"{done} of {done + self.open} episodes", self.speed]
        return ", ".join(filter(None, [*told, f"{time.monotonic() - self._begun:.0f} s"]))

    @contextmanager
    def watched(self, show: Callable[[], None], every: float) -> Iterator[None]:
        """Calls `show` every so many seconds of an update inside the block, from a thread of its own.

        Inside the block of another watcher it does nothing.
        """
        if self._watched:
            yield
            return
        self._watched, over = True, threading.Event()
        self.begin()

        def watch() -> None:
            shown = 0.0
            while not over.wait(min(every, 1.0)):
                if time.monotonic() - max(self._begun, shown) >= every:
                    shown = time.monotonic()
                    show()

        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._watched, self.phase = False, ""


PULSE = Pulse()
"""That of this process."""
