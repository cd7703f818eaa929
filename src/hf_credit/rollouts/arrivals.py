"""What episodes wait for while they are played: single replies, and steps in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from hf_credit.rollouts.pulse import PULSE
from hf_credit.rollouts.running import RunningEpisode
from hf_credit.rollouts.samplers import BadReplyError, Generation


class Arrivals:
    """The futures that running episodes wait for: single replies, and parallel steps."""

    def __init__(self, lock: threading.Lock | None) -> None:
        self.lock = lock
        self._expected: set[Future[Any]] = set()
        self._arrived: SimpleQueue[tuple[Future[Any], RunningEpisode[Any], Callable[[Any], object]]] = SimpleQueue()

    def expect(self, future: Future[Any], running: RunningEpisode[Any], take: Callable[[Any], object]) -> None:
        """Lets `running` wait for a future, the result of which is passed to `take`."""
        self._expected.add(future)
        future.add_done_callback(lambda done: self._arrived.put((done, running, take)))

    def take(self, wait: bool) -> list[RunningEpisode[Any]]:
        """Passes on the results that have arrived.

        Args:
            wait: whether to wait for at least one.

        Returns:
            The running episodes that have all their results.

        Raises:
            Exception: the exception of a future, but for a bad reply, with which its running episode ends.
        """
        arrived = []
        if wait and self._arrived.empty():
            with released(self.lock):
                arrived.append(self._arrived.get())
        while not self._arrived.empty():
            arrived.append(self._arrived.get())
        complete = []
        for future, running, take in arrived:
            self._expected.discard(future)
            try:
                result = future.result()
                if isinstance(result, Generation):
                    PULSE.replied([len(result.ids)])
                take(result)
            except BadReplyError as error:
                running.refused = error
            running.coming -= 1
            if not running.coming:
                complete.append(running)
        return complete

    def cancel(self) -> None:
        """Cancels all futures that have not arrived."""
        for future in self._expected:
            future.cancel()


@contextmanager
def released(lock: threading.Lock | None) -> Iterator[None]:
    """Releases a lock inside the block, if there is one."""
    if lock is None:
        yield
        return
    lock.release()
    try:
        yield
    finally:
        lock.acquire()


def in_thread(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Returns a future of a function, which is called in a daemon thread."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()  # so that it cannot be cancelled
    threading.Thread(target=call, daemon=True).start()
    return future
