from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hf_credit.rollouts import Engine, Generation, Interaction, Request, RolloutRequest
from hf_credit.rollouts import pulse as module
from hf_credit.rollouts.pulse import PULSE, Pulse


@dataclass(frozen=True)
class Talk:
    turns: int
    replies: int = 0


class Talks(Interaction[Talk]):
    """Takes as many replies as the task says."""

    def start(self, task: Any, seed: int) -> Talk:
        return Talk(task["turns"])

    def pending(self, state: Talk) -> Any:
        asked = [{"role": "user", "content": str(state.replies)}]
        return (Request(role="a", messages=asked),) if state.replies < state.turns else ()

    def advance(self, state: Talk, replies: Any) -> Talk:
        return replace(state, replies=state.replies + 1)

    def outcome(self, state: Talk) -> float:
        return 1.0

    def reseed(self, state: Talk, seed: int) -> Talk:
        return state


def babble(contexts: Any) -> list[Generation]:
    return [Generation(ids=[5] * (1 + len(one) % 3)) for one in contexts]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_line_counts_from_the_beginning_of_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", clock := Clock())
    pulse = Pulse()
    pulse.played(5, 0)
    pulse.begin("generating")
    pulse.played(0, 8)
    pulse.replied([3] * 10)
    clock.now += 6
    pulse.played(3, -3)
    assert str(pulse) == "generating, 3 of 8 episodes, 5 tokens/s, 6 s"
    pulse.phase = "learning"
    assert str(pulse).startswith("learning, 3 of 8 episodes")
    pulse.begin("saving")
    assert str(pulse) == "saving, 0 of 5 episodes, 0 tokens/s, 0 s"
    pulse.begin()
    assert str(pulse) == "0 of 5 episodes, 0 tokens/s, 0 s"
    pulse.played(5, -5)
    pulse.begin("saving")
    assert str(pulse) == "saving, 0 s"


@pytest.mark.parametrize("single", [True, False])
def test_engines_count_episodes_and_replies_and_leave_none_open(chat: Any, single: bool) -> None:
    seen = []

    class Sampler:
        def __call__(self, contexts: Any) -> Any:
            seen.append((PULSE.ended - ended, PULSE.open))
            return babble(contexts)

    starts = [RolloutRequest(task={"turns": turns}) for turns in (0, 1, 2, 2)]
    ended, replies, tokens = PULSE.ended, PULSE.replies, PULSE.tokens
    engine = Engine(Talks(), chat, Now() if single else Sampler(), max_concurrent=2)
    played = engine.run(starts)
    decisions = [one for episode in played for one in episode.decisions]
    assert (PULSE.ended - ended, PULSE.open) == (4, 0)
    assert PULSE.replies - replies == len(decisions)
    assert PULSE.tokens - tokens == sum(len(one.action_ids) for one in decisions)
    assert single or seen[0] == (1, 3)  # the first needs no reply


def test_a_tree_counts_its_leaves_and_an_error_closes_what_was_open(chat: Any) -> None:
    ended = PULSE.ended
    tree = RolloutRequest(task={"turns": 2}, fanout=(3, 2))
    Engine(Talks(), chat, babble).run([tree])
    assert (PULSE.ended - ended, PULSE.open) == (6, 0)
    with pytest.raises(OSError, match="gone"):
        Engine(Talks(), chat, gone).run([tree])
    assert PULSE.open == 0


def gone(contexts: Any) -> Any:
    raise OSError("gone")


class Now:
    def submit(self, role: str, context: Any, seed: int | None) -> Any:
        future: Future[Any] = Future()
        future.set_result(babble([context])[0])
        return future


def test_a_watcher_shows_a_line_while_the_block_runs_and_only_if_it_is_long() -> None:
    pulse, shown, seen = Pulse(), threading.Event(), list[str]()

    def show() -> None:
        seen.append(pulse.phase)
        shown.set()

    with pulse.watched(lambda: seen.append("no"), 1e6):
        pass
    assert seen == []
    with pulse.watched(show, 1e-3):
        pulse.begin("generating")
        assert shown.wait(60)
        with pulse.watched(lambda: seen.append("no"), 1e-3):
            pass
    assert "no" not in seen
    assert pulse.phase == ""
    assert not any(one.name == "progress" for one in threading.enumerate())
