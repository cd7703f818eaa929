"""Gymnasium's environments as text; slippery ice has one past and many futures."""

from __future__ import annotations

import string
from typing import Any

import pytest
from picture_strip import red_cell, strip

from hf_credit.content import Text
from hf_credit.environments import check_env, make
from hf_credit.environments.actions import tag
from hf_credit.environments.reseeding import reseed

gymnasium = pytest.importorskip("gymnasium")

MOVES = ("left", "down", "right", "up")


def lake(slippery: bool = True, **options: Any) -> Any:
    return make(
        "gymnasium",
        id="FrozenLake-v1",
        options={"is_slippery": slippery},
        actions=MOVES,
        self_contained=True,
        **options,
    )


def where(env: Any, observation: Any) -> str:
    return f"Field {int(observation)} of {env.observation_space.n}."


@pytest.mark.parametrize("slippery", [True, False])
@pytest.mark.parametrize("sessions", [1, 8])
def test_frozen_lake_keeps_every_rule(slippery, sessions):
    check_env(lake(slippery, sessions=sessions), range(3))


def test_the_observation_is_gymnasiums_rendering_with_the_agent_in_brackets():
    environment = lake(slippery=False)
    state = environment.initial_state({}, 0)
    assert environment.observe(state) == "[S]FFF\nFHFH\nFFFH\nHFFG"
    assert environment.step(state, tag("Right")).observation == "  (Right)\nS[F]FF\nFHFH\nFFFH\nHFFG"


def test_reaching_the_goal_is_rewarded():
    environment = lake(slippery=False, show=where)
    state, earned = environment.initial_state({}, 0), []
    for move in ("down", "down", "right", "right", "down", "right"):
        transition = environment.step(state, move)
        state = transition.state
        earned.append(transition.reward)
    assert (earned, state.status, environment.observe(state)) == ([0, 0, 0, 0, 0, 1], "finished", "Field 15 of 16.")
    assert environment.metrics(state)["success"] == 1.0


def test_on_slippery_ice_a_new_seed_changes_the_future_and_not_the_position():
    environment = lake(show=where)
    state = environment.initial_state({}, 3)
    for _ in range(4):
        state = environment.step(state, "up").state  # along the upper bank, which has no holes
    environment.close()
    futures = set()
    for seed in range(20):
        other = reseed(state, seed)
        assert environment.observe(other) == environment.observe(state)
        futures.add(environment.step(other, "up").observation)
    assert len(futures) >= 2
    # Without a new seed, the future is the same in a live and in a restored world.
    assert len({environment.step(state, "up").observation for _ in range(5)}) == 1


@pytest.mark.parametrize("reply", ["jump", "0", "left right", ""])
def test_a_reply_without_an_action_costs_only_a_turn(reply):
    environment = lake()
    state = environment.initial_state({}, 0)
    after = environment.step(state, reply)
    assert (after.info["action"], after.state.actions, after.state.status) == (None, (), "active")


def test_gymnasiums_step_limit_ends_the_episode():
    assert lake().max_turns == 100
    environment = lake(slippery=False)
    state = environment.initial_state({}, 0)
    for _ in range(100):
        assert state.status == "active"
        state = environment.step(state, "left").state
    assert (state.status, environment.outcome(state)) == ("finished", 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "NoSuchGame-v0"}, "id must be registered in Gymnasium, got 'NoSuchGame-v0'"),
        (
            {"id": "FrozenLake-v1", "actions": ["left"]},
            "each of the 4 actions of 'FrozenLake-v1' must have its own name",
        ),
        ({"id": "FrozenLake-v1", "actions": ["a", "b", "c", "A"]}, "must have its own name"),
        ({"id": "Pendulum-v1"}, "must have Text observations, the render mode ansi or a renderer, got 'Pendulum-v1'"),
        ({"id": "Pendulum-v1", "show": where}, "actions must be of a Discrete or a Text space"),
    ],
)
def test_an_environment_without_text_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make("gymnasium", **options)


class Echo(gymnasium.Env):
    """Text in, text out; wins with `please`."""

    action_space = gymnasium.spaces.Text(5000, charset=string.printable)
    observation_space = gymnasium.spaces.Text(5000, charset=string.printable)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "Say something.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"You said {action!a}.", 0.5, action == "please", False, {"is_success": action == "please"}


def test_text_actions_and_observations_need_no_renderer():
    gymnasium.register("Echo-v0", entry_point=Echo)
    environment = make("gymnasium", id="Echo-v0", actions=["Hello", "please"], turns=4)
    check_env(environment, range(2))
    after = environment.step(environment.initial_state({}, 0), f"Well. {tag('Open  Sesame')}")
    assert after.observation == "You said 'Open  Sesame'."
    after = environment.step(after.state, "please")
    assert (after.terminated, environment.outcome(after.state), environment.metrics(after.state)["success"]) == (
        True,
        1,
        1,
    )


def test_an_environment_that_is_rendered_as_an_image_keeps_every_rule_and_shows_it():
    environment = strip(options={"render_mode": "rgb_array"}, sessions=1)
    check_env(environment, range(2))
    state = environment.initial_state({}, 0)
    cells = []
    for action in ("right", "left", "right", "right"):
        state = environment.step(state, tag(action)).state
        (image,) = environment.observe(state)
        cells.append(red_cell(image))
    assert cells == [1, 0, 1, 2]
    assert environment.state_type.from_json(state.to_json()) == state


def test_an_image_follows_the_text_of_a_renderer():
    environment = strip(options={"render_mode": "rgb_array"}, show=where)
    text, image = environment.observe(environment.initial_state({}, 0))
    assert (text, image.size, red_cell(image)) == (Text("Field 0 of 4."), (32, 8), 0)
    unread = environment.step(environment.initial_state({}, 0), "?").observation
    assert unread == (Text("No action could be read in the last reply."), text, image)


@pytest.mark.parametrize("options", [{}, {"render_mode": "human"}])
def test_an_environment_that_shows_neither_text_nor_images_is_refused(options):
    with pytest.raises(ValueError, match="pass show, or rgb_array as render_mode in options"):
        strip(options=options)
