"""A new seed changes only the future; an environment that recomputes its past from it is caught."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hf_credit.environments import ENVIRONMENTS, Environment, State, Transition, check_env, make
from hf_credit.environments.actions import plain_action, tag
from hf_credit.environments.randomness import stream
from hf_credit.environments.reseeding import reseed, reseed_problems


@dataclass(frozen=True, kw_only=True)
class LakeState(State):
    """Steps on ice: the moves so far, and the position if `kept`."""

    moves: tuple[str, ...] = ()
    place: int = 0


class Lake(Environment[LakeState]):
    """Eight fields in a row; left or right, and sometimes a step slips the other way. The last field wins.

    Args:
        past: `"kept"` in the state, as it should be; `"replayed"` from the seed whenever somebody looks; or
            `"half"`, where the observation alone is kept.
    """

    name = "lake"
    state_type = LakeState
    task_columns = ("start",)

    def __init__(self, past: str = "kept") -> None:
        self.past = past

    instructions = f"Go {tag('left')} or {tag('right')}."
    max_turns = 12

    def sample_task(self, seed: int) -> dict[str, Any]:
        return {"start": stream(seed, "lake").randrange(4)}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> LakeState:
        return LakeState(seed=seed, place=task["start"])

    def place(self, state: LakeState) -> int:
        if self.past == "kept":
            return state.place
        place = state.place  # here: where the episode began
        for turn, move in enumerate(state.moves):
            place = self.slide(place, move, state.seed, turn)
        return place

    def slide(self, place: int, move: str, seed: int, turn: int) -> int:
        slips = stream(seed, "slip", turn).random() < 0.3
        return min(max(place + (1 if (move == "right") != slips else -1), 0), 7)

    def observe(self, state: LakeState) -> str:
        return f"Field {self.place(state)}. {state.status}."

    def legal_actions(self, state: LakeState) -> tuple[str, ...]:
        return ("left", "right") if state.status == "active" else ()

    def step(self, state: LakeState, action: str) -> Transition[LakeState]:
        read = plain_action(action)
        if state.status == "active" and read not in ("left", "right"):
            state = replace(state, status="invalid")
            return Transition(
                state=state, observation=self.observe(state), reward=0.0, terminated=True, info={"action": read}
            )
        if state.status != "active":
            return Transition(
                state=state, observation=self.observe(state), reward=0.0, terminated=True, info={"action": read}
            )
        moved = replace(state, moves=(*state.moves, str(read)))
        if self.past == "kept":
            moved = replace(moved, place=self.slide(state.place, str(read), state.seed, len(state.moves)))
        won = self.place(moved) == 7
        moved = replace(moved, status="finished") if won or len(moved.moves) == self.max_turns else moved
        return Transition(
            state=moved,
            observation=self.observe(moved),
            reward=float(won),
            terminated=moved.status != "active",
            info={"action": read},
        )

    def outcome(self, state: LakeState) -> float:
        return float(state.status != "invalid" and self.place(state) == 7)

    def metrics(self, state: LakeState) -> dict[str, float]:
        return {"success": self.outcome(state)}


def test_reseeding_changes_only_the_seed():
    state = LakeState(seed=1, moves=("left",), place=2)
    assert reseed(state, 0) == replace(state, seed=reseed(state, 0).seed)
    assert len({state.seed, *(reseed(state, seed).seed for seed in range(5))}) == 6
    assert reseed(state, 3) == reseed(state, 3)


def test_an_environment_that_keeps_its_past_passes():
    check_env(Lake())


def test_an_environment_that_recomputes_its_past_from_the_new_seed_is_caught():
    with pytest.raises(AssertionError, match=r"a new seed must change only the future of a state"):
        check_env(Lake("replayed"))


class HalfLake(Lake):
    """Shows the old field, but its position is another."""

    def observe(self, state: LakeState) -> str:
        return f"Turn {len(state.moves)}. {state.status}." if state.status == "active" else super().observe(state)


def test_a_past_that_shows_only_at_the_end_is_caught():
    with pytest.raises(AssertionError, match=r"the result of an unreadable reply of LakeState"):
        check_env(HalfLake("replayed"))


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_the_environments_of_the_library_keep_their_past(name):
    environment = make(name)
    for seed in range(3):
        state = environment.initial_state(environment.sample_task(seed), seed)
        states = [state]
        while state.status == "active" and len(states) <= environment.max_turns:
            state = environment.step(state, environment.legal_actions(state)[seed % 2]).state
            states.append(state)
        assert list(reseed_problems(environment, states)) == []


def test_up_to_eight_states_of_an_episode_are_checked():
    looked = []

    class Watched(Lake):
        def observe(self, state: LakeState) -> str:
            looked.append(len(state.moves))
            return super().observe(state)

    states = [LakeState(seed=0, moves=("left",) * turn) for turn in range(100)]
    assert list(reseed_problems(Watched(), states)) == []
    assert sorted(set(looked)) == [0, 14, 28, 42, 56, 70, 84, 99]
    assert list(reseed_problems(Watched(), states[:1])) == []
