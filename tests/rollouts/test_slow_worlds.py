"""Parallel steps of an environment give the same episodes as sequential ones."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from hf_credit.environments.actions import tag
from hf_credit.environments.replayed import ReplayedEnvironment
from hf_credit.rollouts import Ending, Engine, EnvironmentInteraction, Generation, RolloutRequest, replay_from


class Counter:
    """Counts to its goal; `fail` raises an exception."""

    barrier: threading.Barrier | None = None
    lies = False

    def reset(self, task: Any, seed: int) -> str:
        self.count, self.goal = 0, task["goal"]
        return "0"

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if Counter.barrier is not None:
            Counter.barrier.wait(timeout=60)
        if action == "fail":
            raise RuntimeError("the world broke")
        self.count += 1
        over = self.count == self.goal
        return f"{self.count}{'!' * self.lies}", float(over), over, {}

    def close(self) -> None:
        pass


class Counting(ReplayedEnvironment):
    name = "counting"
    task_columns = ("goal",)
    instructions = "Count."
    max_turns = 3

    def sample_task(self, seed: int) -> dict[str, Any]:
        return {"goal": 1 + seed % 3}

    def open_world(self) -> Counter:
        return Counter()


@pytest.fixture(autouse=True)
def honest() -> Any:
    yield
    Counter.barrier, Counter.lies = None, False


class Says:
    """Replies with an action by the task's number; some raise an exception and some are empty."""

    def __init__(self, chat: Any, *actions: str) -> None:
        self.replies = [Generation(ids=[*chat.encode(action), chat.tokenizer.eos_token_id]) for action in actions]
        self.asked = 0

    def __call__(self, contexts: Any) -> list[Generation]:
        self.asked += 1
        return [self.replies[place % len(self.replies)] for place in range(len(contexts))]


def plain(episodes: Any) -> list[Any]:
    """Episodes without ids of decisions, and exceptions by their message."""
    return [
        (
            dataclasses.replace(
                episode,
                exception=None,
                outcome=0.0,
                decisions=tuple(dataclasses.replace(decision, id="") for decision in episode.decisions),
            ),
            str(episode.outcome),  # NaN is equal to nothing
        )
        for episode in episodes
    ]


def test_as_many_steps_run_in_parallel_as_the_environment_allows(chat):
    # Nobody passes the barrier before eight stand at it.
    Counter.barrier = threading.Barrier(8)
    engine = Engine(EnvironmentInteraction(Counting(8)), chat, Says(chat, tag("go")))
    episodes = engine.run([RolloutRequest(task={"goal": 2}, seed=seed) for seed in range(8)])
    assert [episode.ending for episode in episodes] == [Ending.FINISHED] * 8


@pytest.mark.parametrize("sessions", [1, 2, 5, 64])
def test_parallel_steps_give_the_same_episodes_as_sequential_ones(chat, sessions):
    environment, serial = Counting(sessions), Counting(sessions)
    serial.slow_steps = 1
    starts = [RolloutRequest(task={"goal": 1 + seed % 4}, seed=seed, fanout=(2,)) for seed in range(7)]
    says = (tag("go"), "nothing", tag("on"), tag("fail"))
    both = [Engine(EnvironmentInteraction(one), chat, Says(chat, *says)).run(starts) for one in (environment, serial)]
    assert plain(both[0]) == plain(both[1])
    endings = {episode.ending for episode in both[0]}
    assert endings == {Ending.FINISHED, Ending.ERROR, Ending.TURN_LIMIT}


def test_an_environment_that_fails_ends_only_its_episode(chat):
    engine = Engine(EnvironmentInteraction(Counting(4)), chat, Says(chat, tag("go"), tag("fail")))
    episodes = engine.run([RolloutRequest(task={"goal": 1}, seed=seed) for seed in range(4)])
    assert [episode.ending for episode in episodes] == [Ending.FINISHED, Ending.ERROR] * 2
    assert episodes[1].error == "RuntimeError: the world broke"
    assert [len(episode.decisions) for episode in episodes] == [1, 1, 1, 1]


def test_an_environment_that_diverges_in_a_replay_ends_the_episode_in_an_error(chat):
    environment = Counting(1)
    interaction = EnvironmentInteraction(environment)
    engine = Engine(interaction, chat, Says(chat, tag("go")))
    (episode,) = engine.run([RolloutRequest(task={"goal": 3}, seed=0)])
    environment.close()
    Counter.lies = True
    (replayed,) = engine.run([replay_from(interaction, chat, episode, 1)])
    assert replayed.ending == Ending.ERROR
    assert replayed.error.startswith("DivergedError: a world must repeat itself")
    assert interaction.costs()["diverged"] == 1


def test_a_refused_reply_costs_a_turn(chat):
    engine = Engine(EnvironmentInteraction(Counting()), chat, Says(chat, "nothing"))
    (episode,) = engine.run([RolloutRequest(task={"goal": 3}, seed=0)])
    assert (len(episode.decisions), episode.ending, episode.metrics["world_actions"]) == (3, Ending.TURN_LIMIT, 0)


def test_every_alternative_starts_from_the_same_state(chat):
    environment = Counting()
    engine = Engine(EnvironmentInteraction(environment), chat, Says(chat, tag("go")))
    episodes = engine.run([RolloutRequest(task={"goal": 3}, seed=0, fanout=(1, 4))])
    assert [episode.outcome for episode in episodes] == [1.0] * 4
    # Three of them begin by playing the first action again; they say the same, and each goes on in a world of its own.
    assert environment.costs()["replayed_steps"] == 3
