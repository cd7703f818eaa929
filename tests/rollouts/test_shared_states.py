"""Alternatives with a shared mutable state, or with a past that a new seed changes, are refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from hf_credit.environments.randomness import stream
from hf_credit.rollouts import Engine, Generation, Interaction, Request, RolloutRequest
from hf_credit.rollouts.shared_states import SharedStateError, require_value


class LiveGame:
    """An environment that steps in place, as in Gymnasium."""

    def __init__(self):
        self.count = 0

    def step(self):
        self.count += 1


@dataclass(frozen=True)
class Around:
    """A frozen dataclass with a mutable field."""

    game: LiveGame
    turns: int = 0


class InPlace(Interaction[Around]):
    turns = 3

    def start(self, task, seed):
        return Around(LiveGame())

    def pending(self, state):
        messages = [{"role": "user", "content": f"count {state.game.count}"}]
        return () if state.turns == self.turns else (Request(role="agent", messages=messages),)

    def advance(self, state, replies):
        state.game.step()
        return replace(state, turns=state.turns + 1)

    def outcome(self, state):
        return 0.0


class Copying(InPlace):
    """The same as it should be."""

    def advance(self, state, replies):
        game = LiveGame()
        game.count = state.game.count
        game.step()
        return Around(game, state.turns + 1)


@dataclass(frozen=True)
class Slipped:
    """A walk on ice that is recomputed from its first step for each call."""

    seed: int
    steps: int = 0

    @property
    def place(self):
        draws = stream(self.seed, "ice")
        return sum(draws.choice((-1, 1)) for _ in range(self.steps))


class ReplaysWithTheNewSeed(Interaction[Slipped]):
    def start(self, task, seed):
        return Slipped(seed)

    def pending(self, state):
        messages = [{"role": "user", "content": f"at {state.place}"}]
        return () if state.steps == 8 else (Request(role="agent", messages=messages),)

    def advance(self, state, replies):
        return replace(state, steps=state.steps + 1)

    def outcome(self, state):
        return float(state.place)

    def reseed(self, state, seed):
        return replace(state, seed=seed + 1000)


def say_nothing(contexts):
    return [Generation(ids=[1]) for _ in contexts]


@pytest.mark.parametrize("most", [1, 256])
@pytest.mark.parametrize("fanout", [(4,), (1, 2), (2, 2)])
def test_alternatives_that_share_a_live_object_are_refused(chat, most, fanout):
    engine = Engine(InPlace(), chat, say_nothing, max_concurrent=most)
    with pytest.raises(SharedStateError, match="one of type Around of InPlace that has changed since its requests"):
        engine.run([RolloutRequest(fanout=fanout)])
    assert len(Engine(Copying(), chat, say_nothing, max_concurrent=most).run([RolloutRequest(fanout=fanout)])) >= 2


@pytest.mark.parametrize("most", [1, 256])
def test_replays_that_share_a_live_object_are_refused(chat, most):
    engine = Engine(InPlace(), chat, say_nothing, max_concurrent=most)
    state = Around(LiveGame())
    with pytest.raises(SharedStateError, match="that has changed since"):
        engine.run([RolloutRequest(state=state), RolloutRequest(state=state)])


def test_a_single_episode_may_change_its_state(chat):
    (episode,) = Engine(InPlace(), chat, say_nothing).run([RolloutRequest()])
    assert len(episode.decisions) == 3


def test_a_new_seed_that_changes_the_past_is_refused(chat):
    engine = Engine(ReplaysWithTheNewSeed(), chat, say_nothing)
    with pytest.raises(SharedStateError, match="by another alternative or by a new seed"):
        engine.run([RolloutRequest(fanout=(1, 1, 1, 1, 1, 4))])
    with pytest.raises(SharedStateError, match="was changed by a new seed"):
        engine.run([RolloutRequest(state=Slipped(seed=0, steps=5), seed=seed) for seed in range(4)])


@dataclass
class Thawed:
    words: str = ""


@dataclass(frozen=True)
class Listing:
    words: list[str] = field(default_factory=list)


class Bare:
    pass


@pytest.mark.parametrize("state", [Thawed(), Listing(), Bare(), {}, ["a"], ("a", [])], ids=lambda s: type(s).__name__)
def test_a_state_that_is_not_a_value_is_refused_with_its_type(chat, state):
    with pytest.raises(SharedStateError, match=f"got one of type {type(state).__name__}; make it a frozen dataclass"):
        require_value(state)

    class Odd(InPlace):
        def start(self, task, seed):
            return state

        def pending(self, state):
            return (Request(role="agent", messages=[]),)

    with pytest.raises(SharedStateError, match="must be a value"):
        Engine(Odd(), chat, say_nothing).run([RolloutRequest(fanout=(2,))])
    with pytest.raises(SharedStateError, match="must be a value"):
        Engine(Odd(), chat, say_nothing).run([RolloutRequest(state=state)])
