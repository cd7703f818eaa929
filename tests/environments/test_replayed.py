"""Worlds that cannot be copied: their states are values, and every way of restoring one gives the same episode."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments import check_env
from hf_credit.environments.actions import tag
from hf_credit.environments.replayed import DivergedError, ReplayedEnvironment, ReplayedState
from hf_credit.environments.reseeding import reseed
from hf_credit.environments.sessions import Sessions
from hf_credit.rollouts import EnvironmentInteraction

NO_TROUBLE = {"restored": 0, "lost": 0, "diverged": 0}


class Lift:
    """A lift in the wind: `up` and `down` move it by one floor or none; the roof ends the episode."""

    live: list[Lift]
    lock = threading.Lock()
    most = 0
    given: list[str]

    def __init__(self) -> None:
        with Lift.lock:
            Lift.live.append(self)
            Lift.most = max(Lift.most, len(Lift.live))

    def reset(self, task: Any, seed: int) -> str:
        self.roof, self.floor, self.wind = task["roof"], 0, random.Random(seed)
        return self.shown()

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        Lift.given.append(action)
        if action == "jump":
            raise RuntimeError("the cable broke")
        if action not in ("up", "down", "wait"):
            return "You cannot do that.", 0.0, False, {"refused": True}
        if action != "wait" and self.wind.random() < 0.7:
            self.floor = max(self.floor + (1 if action == "up" else -1), 0)
        over = self.floor == self.roof
        return self.shown(), float(over), over, {}

    def shown(self) -> str:
        return f"Floor {self.floor} of {self.roof}."

    def close(self) -> None:
        with Lift.lock:
            Lift.live.remove(self)


class ReseedingLift(Lift):
    def reseed(self, seed: int) -> None:
        self.wind = random.Random(seed)

    def legal_actions(self) -> list[str]:
        return ["up", "down", "wait"]


class MoodyLift(Lift):
    """Draws random numbers without the seed."""

    moods = itertools.count()

    def reset(self, task: Any, seed: int) -> str:
        super().reset(task, seed)
        self.wind = random.Random(next(self.moods))
        return self.shown()

    def shown(self) -> str:
        return f"{super().shown()} Sway: {self.wind.random()}"


class Ride(ReplayedEnvironment):
    name = "ride"
    task_columns = ("roof",)
    instructions = "Go up to the roof."
    max_turns = 30
    lift: type[Lift] = ReseedingLift

    def sample_task(self, seed: int) -> dict[str, Any]:
        return {"roof": 2 + seed % 3}

    def open_world(self) -> Lift:
        return self.lift()

    def examples(self, state: ReplayedState) -> tuple[str, ...]:
        return ("up", "wait")


class FixedRide(Ride):
    lift = Lift


class MoodyRide(Ride):
    lift = MoodyLift


class StrictRide(Ride):
    """Accepts only the actions that it lists, and does not forgive others."""

    open_actions = False
    forgiving = False

    def understands(self, state: ReplayedState, action: str) -> bool:
        return action in ("up", "down", "wait")


RIDES = [Ride, FixedRide, StrictRide]


@pytest.fixture(autouse=True)
def no_lifts() -> Any:
    Lift.live, Lift.most, Lift.given = [], 0, []
    yield
    gc.collect()
    assert Lift.live == []


def played(environment: Ride, actions: list[str], seed: int = 5) -> list[ReplayedState]:
    states = [environment.initial_state({"roof": 4}, seed)]
    for action in actions:
        states.append(environment.step(states[-1], action).state)
    return states


@pytest.mark.parametrize("ride", RIDES)
@pytest.mark.parametrize("sessions", [1, 64])
def test_a_live_world_follows_every_rule_of_environments(ride, sessions):
    check_env(ride(sessions), range(4))


def test_a_state_holds_its_actions():
    states = played(Ride(), ["up", "wait", "up"])
    assert json.loads(states[0].task) == {"roof": 4}
    assert [state.actions for state in states] == [(), ("up",), ("up", "wait"), ("up", "wait", "up")]
    assert [len(state.seen) for state in states] == [1, 2, 3, 4]
    assert {state.seeds for state in states} == {((0, 5),)}


def test_a_state_whose_world_has_moved_on_is_restored_by_replaying_its_actions():
    environment = Ride()
    states = played(environment, ["up", "up", "down"])
    assert environment.costs() == {"worlds_opened": 1, "world_steps": 3, "replayed_steps": 0, **NO_TROUBLE}
    again = environment.step(states[2], "down")
    assert again.state == states[3]
    assert environment.costs() == {"worlds_opened": 2, "world_steps": 6, "replayed_steps": 2, **NO_TROUBLE}


def test_a_world_that_is_not_deterministic_is_reported_and_counted():
    environment = MoodyRide(1)
    states = played(environment, ["up", "wait"])
    environment.close()
    with pytest.raises(DivergedError, match="got another observation, reward or end at reset of 'ride'"):
        environment.step(states[-1], "up")
    assert environment.costs()["diverged"] == 1
    assert Lift.live == []


def test_the_error_of_a_world_that_diverges_later_names_the_action():
    class LateLift(Lift):
        def reset(self, task: Any, seed: int) -> str:
            return super().reset(task, next(MoodyLift.moods))

    environment = FixedRide()
    environment.lift = LateLift
    # Two episodes differ in a step with probability 0.4, so forty steps hardly ever agree.
    state = environment.initial_state({"roof": 1000}, 0)
    for _ in range(40):
        state = environment.step(state, "up").state
    environment.close()
    with pytest.raises(DivergedError, match=r"after action \d+ of 40, 'up', of 'ride'"):
        environment.step(state, "up")


def test_a_new_seed_changes_the_future_and_then_belongs_to_the_past():
    environment = Ride()
    states = played(environment, ["up", "up"])
    futures = set()
    for seed in range(8):
        state = reseed(states[-1], seed)
        assert environment.observe(state) == environment.observe(states[-1])
        began = state.seed
        for _ in range(2):
            state = environment.step(state, "up").state
        assert state.seeds == ((0, 5), (2, began))
        environment.close()  # every world is released: actions before and after the new seed are replayed
        last = environment.step(state, "wait")
        assert last.observation == state.observation
        assert last.state.seeds == state.seeds
        futures.add(state.observation)
    assert len(futures) > 1


def test_a_world_without_reseeding_has_the_same_future():
    environment = FixedRide()
    states = played(environment, ["up", "up"])
    after = {environment.step(reseed(states[-1], seed), "up").observation for seed in range(8)}
    assert after == {environment.step(states[-1], "up").observation}


moves = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["up", "down", "wait", "?"]), st.integers(0, 2)))


@given(moves=moves, sessions=st.integers(1, 4), ride=st.sampled_from(RIDES[:3]))
def test_an_episode_does_not_depend_on_the_order_or_number_of_live_worlds(moves, sessions, ride):
    """Four episodes that take turns at random, sometimes with a new seed, equal four separate ones."""
    shared, alone = ride(sessions), [ride(1) for _ in range(4)]
    starts = [one.initial_state({"roof": 2}, 1) for one in alone]
    states = [shared.initial_state({"roof": 2}, 1) for _ in range(4)]
    assert states == starts
    for walker, action, seed in moves:
        befores = [states[walker], starts[walker]]
        if seed:
            befores = [reseed(before, seed) for before in befores]
        transitions = [shared.step(befores[0], action), alone[walker].step(befores[1], action)]
        assert transitions[0] == transitions[1]
        states[walker], starts[walker] = (transition.state for transition in transitions)
    assert shared.costs()["worlds_opened"] <= 4
    for environment in (shared, *alone):
        environment.close()


def test_in_threads_no_more_worlds_are_live_than_allowed_and_none_is_shared():
    environment, serial = Ride(3), Ride()

    def ride(one: Ride, seed: int) -> ReplayedState:
        state = one.initial_state({"roof": 3}, seed % 4)  # several have the same seed
        for turn in range(12):
            state = one.step(state, ("up", "wait", "down", "up")[(turn + seed) % 4]).state
        return state

    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda seed: ride(environment, seed), range(24)))
    assert Lift.most <= 3
    assert together == [ride(serial, seed) for seed in range(24)]


def test_close_releases_every_world_and_states_remain_usable():
    environment = Ride(8)
    states = played(environment, ["up", "up", "up"])
    environment.step(states[0], "up")
    assert len(Lift.live) == 2
    environment.close()
    assert Lift.live == []
    assert environment.step(states[1], "up").state == states[2]


def test_worlds_of_a_deleted_environment_are_released():
    environment = Ride()
    played(environment, ["up"])
    assert len(Lift.live) == 1
    del environment
    gc.collect()
    assert Lift.live == []


def test_a_finished_world_is_used_for_the_next_task():
    environment = StrictRide()
    for seed in range(5):
        state = environment.initial_state({"roof": 1}, seed)
        while state.status == "active":
            state = environment.step(state, "up").state
        assert (environment.outcome(state), environment.metrics(state)["success"]) == (1.0, 1.0)
    assert environment.costs()["worlds_opened"] == 1


def test_a_copy_of_the_environment_has_its_own_worlds():
    environment = Ride(2)
    states = played(environment, ["up"])
    other = pickle.loads(pickle.dumps(environment))
    assert other.step(states[-1], "up") == environment.step(states[-1], "up")
    assert (other.sessions, other.costs()["worlds_opened"], environment.costs()["worlds_opened"]) == (2, 1, 1)


def test_a_world_that_raises_is_closed_and_its_state_remains_usable():
    environment = Ride()
    states = played(environment, ["up", "up"])
    with pytest.raises(RuntimeError, match="the cable broke"):
        environment.step(states[-1], "jump")
    assert Lift.live == []
    assert environment.step(states[1], "up").state == states[2]


@pytest.mark.parametrize("text", ["", " \n", "\x00", "up\ud800", "x" * 5000])
def test_invalid_text_is_refused_and_never_sent_to_the_world(text):
    environment = Ride()
    before = played(environment, ["up"])[-1]
    sent = list(Lift.given)
    after = environment.step(before, text)
    assert Lift.given == sent
    assert (after.info["action"], after.reward, after.state.status, after.state.unread) == (None, 0.0, "active", True)
    why = ": it has more than 4,096 characters" if len(text) == 5000 else ""
    assert after.observation == f"No action could be read in the last reply{why}.\n\n{before.observation}"
    # The next action continues from the world's position, without replay.
    assert environment.step(after.state, "wait").observation == before.observation
    assert environment.costs()["replayed_steps"] == 0


def test_the_worlds_own_refusal_is_reported():
    environment = Ride()
    after = environment.step(environment.initial_state({"roof": 2}, 0), "sing")
    assert (after.info["action"], after.observation, after.state.actions) == (None, "You cannot do that.", ("sing",))


def test_actions_are_read_verbatim():
    environment = Ride()
    state = environment.initial_state({"roof": 2}, 0)
    for reply in ("<action>Say  Hi</action>", f"Well: {tag('no')} {tag('Say  Hi')}"):
        assert environment.step(state, reply).state.actions == ("Say  Hi",)


def test_more_replayed_than_new_steps_warn_once(caplog, monkeypatch):
    monkeypatch.setattr("hf_credit.environments.sessions._MANY", 1000)
    environment = Ride(1)
    states = played(environment, ["wait"] * 60)
    for state in reversed(states):
        environment.step(state, "wait")
    # 60 steps at first, one from each state, and 59 + 58 + ... to restore them: the 1000th in the 21st of these.
    assert [record.getMessage() for record in caplog.records] == [
        "1000 of 1081 steps of worlds were replays that restore a state; raise sessions, 1 now, to the number of "
        "episodes under way."
    ]


@pytest.mark.parametrize(
    ("shown", "error", "message"),
    [
        ((b"bytes", 0.0, False, {}), TypeError, "a world must show text or images, got bytes; render it."),
        (("text", float("nan"), False, {}), ValueError, "a world's reward must be a finite number, got nan for 'up'"),
    ],
)
def test_an_invalid_observation_of_a_world_is_refused(shown, error, message, monkeypatch):
    environment = Ride()
    state = environment.initial_state({"roof": 2}, 0)
    monkeypatch.setattr(ReseedingLift, "step", lambda self, action: shown)
    with pytest.raises(error, match=message):
        environment.step(state, "up")


def test_a_world_with_broken_facts_is_closed_and_makes_room(monkeypatch):
    environment = Ride(sessions=1)
    monkeypatch.setattr(ReseedingLift, "step", lambda self, action: ("Floor 1.", 0.0, False, None))
    for _ in range(2):
        with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'get'"):
            environment.step(environment.initial_state({"roof": 4}, 0), "up")
    assert Lift.live == []


def test_an_episode_that_ends_before_its_world_leaves_it_to_others_if_it_cannot_be_continued():
    environment = MoodyRide(sessions=2)
    environment.repeats = False
    interaction = EnvironmentInteraction(environment)
    for seed in range(3):
        ended, other = (interaction.start({"roof": 9}, seed + more) for more in (0, 10))
        ended, other = (interaction.advance(one, ["up"]) for one in (ended, other))
        interaction.outcome(ended)
        interaction.start({"roof": 9}, seed + 20)  # would else take the world of the other, which was used before
        interaction.outcome(interaction.advance(other, ["up"]))
        environment.close()


def test_at_least_one_live_world_must_be_allowed():
    with pytest.raises(ValueError, match="sessions must be at least 1, got 0; raise it"):
        Ride(0)


def test_a_world_that_cannot_be_closed_leaves_no_other_open() -> None:
    class World:
        def __init__(self, breaks: bool) -> None:
            self.breaks, self.closed = breaks, False

        def close(self) -> None:
            self.closed = True
            if self.breaks:
                raise OSError("it broke")

    worlds = [World(breaks) for breaks in (False, True, False)]
    sessions = Sessions(limit=3)
    held = [sessions.any(lambda world=world: world) for world in worlds]
    for number, session in enumerate(held):
        sessions.give(session, number)
    sessions.close()
    assert [world.closed for world in worlds] == [True] * 3
