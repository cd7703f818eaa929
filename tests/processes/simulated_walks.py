"""A small world, and samplers of single requests whose replies are a function of context and seed."""

from __future__ import annotations

import math
import random
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from hf_credit.rollouts import Generation, Interaction, Request


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Where a walk stands.

    Attributes:
        name: of its task.
        turns: it takes.
        replies: so far.
        luck: what its seed brings.
    """

    name: int
    turns: int
    replies: tuple[str, ...] = ()
    luck: int = 0


class Walks(Interaction[Walk]):
    """Asks as often as the task says; the outcome depends on every reply."""

    roles = ("walker",)

    def start(self, task: Any, seed: int) -> Walk:
        return Walk(name=task["name"], turns=task["turns"], luck=seed)

    def pending(self, state: Walk) -> tuple[Request, ...]:
        if len(state.replies) == state.turns:
            return ()
        said = " ".join(state.replies)
        return (Request(role="walker", messages=[{"role": "user", "content": f"{state.name}: {said}"}]),)

    def advance(self, state: Walk, replies: Any) -> Walk:
        return replace(state, replies=(*state.replies, *replies))

    def outcome(self, state: Walk) -> float:
        return float(sum(map(ord, "".join(state.replies))) % 7)

    def reseed(self, state: Walk, seed: int) -> Walk:
        return replace(state, luck=seed)


def tasks(number: int) -> list[dict[str, int]]:
    return [{"name": name, "turns": 1 + name % 3} for name in range(number)]


def reply(context: Any, seed: int) -> Generation:
    """Single characters, enough that no two replies are alike: which of two like episodes is asked first is open."""
    draws = random.Random(f"{tuple(context)} {seed}")
    ids = [draws.randrange(5, 100) for _ in range(draws.randrange(4, 7))]
    return Generation(ids=ids, logprobs=[-1.0] * len(ids))


class Shuffled:
    """Replies in an order of its own, in one thread, perhaps some time after it was asked.

    Args:
        seed: of the order.
        most: it never answers more requests than that.
    """

    seeded = True

    def __init__(self, seed: int = 0, most: float = math.inf) -> None:
        self.left = most
        self.draws = random.Random(seed)
        self.asked: list[tuple[tuple[int, ...], int]] = []
        self.waiting: list[tuple[Future[Generation], Any, int]] = []
        self.changed = threading.Condition()
        self.held = False
        self.widest = 0
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, role: str, context: Any, seed: int) -> Future[Generation]:
        future: Future[Generation] = Future()
        with self.changed:
            self.asked.append((tuple(context), seed))
            self.waiting.append((future, context, seed))
            self.widest = max(self.widest, len(self.waiting))
            self.changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self.waiting or self.held or not self.left:
                    self.changed.wait()
                self.left -= 1
                future, context, seed = self.waiting.pop(self.draws.randrange(len(self.waiting)))
            if future.set_running_or_notify_cancel():
                future.set_result(reply(context, seed))

    def hold(self, held: bool) -> None:
        """Whether it keeps all replies back."""
        with self.changed:
            self.held = held
            self.changed.notify()
