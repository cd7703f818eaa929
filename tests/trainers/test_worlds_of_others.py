"""Worlds that are not ours are trained on: with replay of alternatives (C3), by their outcome (VPR's variant), and by
what steps contributed, with an auditor that a user writes (CVT-RL)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from small_runs import OF_OTHERS, REPLAYED, TWO_UPDATES, trained_without_errors

from hf_credit import CreditConfig, CreditTrainer, ReplayLOOConfig, ReplayLOOTrainer, make
from hf_credit.environments.actions import tag
from hf_credit.methods.cvt import constrained_counterfactual
from hf_credit.oracles.auditing import Audit, Proposal
from hf_credit.policies.micro import MicroConfig
from hf_credit.policies.scripted import walk
from hf_credit.rollouts import EnvironmentInteraction, RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy

SETTINGS: dict[str, Any] = {**OF_OTHERS, **TWO_UPDATES}


def frozen_lake(folder: Path) -> tuple[Any, list[str]]:
    pytest.importorskip("gymnasium")
    moves = ["left", "down", "right", "up"]
    return make("gymnasium", id="FrozenLake-v1", actions=moves, turns=4, sessions=16), moves


def textworld(folder: Path) -> tuple[Any, list[str]]:
    pytest.importorskip("textworld")
    from hf_credit.environments.textworld_world import make_games

    make_games(folder, 1, rooms=1, things=1, quest=1, seed=3)
    environment = make("textworld", games=str(folder), turns=3, sessions=16)
    return environment, list(environment.legal_actions(environment.initial_state(environment.sample_task(0), 0)))


def test_textworlds_solver_accepts_its_next_command_after_every_detour_and_plays_the_quest(tmp_path: Path) -> None:
    pytest.importorskip("textworld")
    from hf_credit.environments.textworld_world import make_games

    make_games(tmp_path, 1, quest=4, seed=3)
    environment = make("textworld", games=str(tmp_path), turns=12, sessions=1)
    interaction = EnvironmentInteraction(environment, instructions=False)
    oracle, state = interaction.check_oracle(None), environment.initial_state(environment.sample_task(0), 0)
    first = state
    while state.status == "active":
        (right,) = oracle.valid_actions(state)
        listed = environment.legal_actions(state)
        assert right in listed
        assert oracle.score(state, f"Now {tag(right)}") == 1.0
        assert {oracle.score(state, tag(one)) for one in listed if one != right} == {0.0}
        after_detour = environment.step(state, tag("look")).state
        assert oracle.valid_actions(after_detour) == {right}
        state = environment.step(state, tag(right)).state
    assert (environment.metrics(state)["success"], len(state.actions)) == (1.0, 4)
    assert oracle.valid_actions(state) == frozenset()
    replayed = environment.costs()["replayed_steps"]
    oracle.valid_actions(first)
    assert environment.costs()["replayed_steps"] == replayed  # what the game told is known
    environment.default_oracle().next.clear()
    assert oracle.valid_actions(first) == oracle.valid_actions(first) != frozenset()
    rows = [RolloutRequest(task=environment.sample_task(seed), seed=seed) for seed in range(3)]
    script = interaction.scripted_player(1.0)
    assert script is not None
    assert [interaction.outcome(walk(interaction, script, row)[1]) for row in rows] == [1.0] * 3
    environment.close()


def scienceworld(folder: Path) -> tuple[Any, list[str]]:
    pytest.importorskip("scienceworld")
    if shutil.which("java") is None:
        pytest.skip("ScienceWorld needs Java")
    return make("scienceworld", turns=2, sessions=2), ["look around", "inventory"]


@pytest.fixture(scope="module", params=[frozen_lake, textworld, scienceworld], ids=lambda build: build.__name__)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An Interaction, a policy that has seen some random play of it, and the actions of that play."""
    environment, actions = request.param(tmp_path_factory.mktemp("games"))
    interaction = EnvironmentInteraction(environment, instructions=False)
    # Not `interaction.texts`, which asks the world for its legal actions in every state: some take seconds.
    interaction.texts = lambda episodes: None  # type: ignore[method-assign]

    def script(state: Any, request: Any, draws: Any) -> str:
        return tag(draws.choice(actions))

    policy = init_scripted_policy(
        interaction,
        script,
        [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(4)],
        tmp_path_factory.mktemp("policy"),
        MicroConfig(hidden_size=32, layers=2, heads=2, episodes=4, epochs=30, batch_rows=4, learning_rate=8e-3),
    )
    yield interaction, policy, actions
    environment.close()


class WorldAuditor:
    """A verified success is what the world scores; every action costs a little, one that gets nowhere more."""

    costs = ("budget",)
    categories: tuple[str, ...] = ()
    slots: Mapping[str, int] = {}

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def audit(self, state: Any, action: str) -> Audit:
        return Audit(kind=action.split(" ")[0], tool_call=bool(action), costs={"budget": 0.1 if action else 0.2})

    def success(self, state: Any) -> float:
        return min(max(float(self.environment.outcome(state)), 0.0), 1.0)


class OtherActions:
    """What stands in a step's place is another of some actions."""

    families = ("deletion",)

    def __init__(self, actions: list[str]) -> None:
        self.actions = actions

    def applies(self, state: Any, action: str, family: str) -> bool:
        return any(other != action for other in self.actions)

    def propose(self, state: Any, action: str, family: str, draws: random.Random) -> Proposal:
        return Proposal(action=draws.choice([other for other in self.actions if other != action]))

    def evidence(self, state: Any) -> str:
        return ""


def test_steps_are_replaced_and_played_on_in_it(world: Any, tmp_path: Path) -> None:
    interaction, policy, actions = world
    method = constrained_counterfactual(
        group_size=2,
        steps=1.0,
        branches=2,
        refresh_every=1,
        families={"deletion": 1.0},
        limits={"budget": 0.15},
        auditor=WorldAuditor(interaction.environment),
        interventions=OtherActions(actions),
    )
    args = CreditConfig(
        output_dir=str(tmp_path),
        instances_per_update=2,
        per_device_train_batch_size=2,
        critic_learning_rate=1e-3,
        trust_region=0.025,
        trust_region_top=8,
        trust_region_wide=8,
        **SETTINGS,
    )
    trainer = CreditTrainer(str(policy), interaction, args, method=method, train_dataset=rows())
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "endings/error" in entry]
    assert [entry["endings/error"] for entry in logged] == [0.0, 0.0]
    assert [entry["world/diverged"] for entry in logged] == [0.0, 0.0]
    assert [entry["interventions/deletion/invalid"] for entry in logged] == [0.0, 0.0]
    assert trainer.ledger.counterfactual_tokens > 0
    assert trainer.memory.updates == 2


def rows() -> Dataset:
    return Dataset.from_list([{"seed": seed} for seed in range(4)])


@pytest.mark.parametrize("method", ["replay_loo", "outcome_reward"])
def test_a_policy_is_trained_on_it(world: Any, method: str, tmp_path: Path) -> None:
    interaction, policy, _ = world
    build: Callable[..., Any] = ReplayLOOTrainer if method == "replay_loo" else CreditTrainer
    args: Any
    if method == "replay_loo":
        args = ReplayLOOConfig(output_dir=str(tmp_path), **REPLAYED, **SETTINGS)
        trainer = build(str(policy), interaction, args, train_dataset=rows())
    else:
        args = CreditConfig(
            output_dir=str(tmp_path), instances_per_update=4, per_device_train_batch_size=4, **SETTINGS
        )
        trainer = build(str(policy), interaction, args, method=method, train_dataset=rows())
    logged = trained_without_errors(trainer)
    assert logged[-1]["world/world_steps"] > logged[0]["world/world_steps"] > 0
    assert logged[-1]["world_actions"] > 0  # the policy has learnt valid actions of the world
