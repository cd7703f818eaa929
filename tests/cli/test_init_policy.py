from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from hf_credit.cli.init_policy import create, init_policy
from hf_credit.cli.progress import Progress
from hf_credit.environments import ENVIRONMENTS, make
from hf_credit.oracles import default_oracle
from hf_credit.policies.micro import MICRO_SAMPLING, MicroConfig, build_tokenizer
from hf_credit.rollouts import EnvironmentInteraction, RolloutRequest
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.tasks.spec import TaskSpec
from hf_credit.trainers.micro import init_scripted_policy

SMALL = ("--episodes", 4, "--hidden-size", 16, "--layers", 1, "--heads", 2)


def test_the_command_takes_every_setting_with_its_default() -> None:
    taken = {name: parameter.default for name, parameter in inspect.signature(init_policy).parameters.items()}
    for setting in dataclasses.fields(MicroConfig):
        assert taken[setting.name] == setting.default


def test_a_policy_is_saved_with_its_task(command: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    code, out, err = command("init-policy", "sudoku", folder, "--option", "size=4", *SMALL)
    assert code == 0
    assert str(folder) in out
    assert "scripted play: 4/4" in err
    assert "warm-up: 1/1 loss" in err
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 16
    setup = TaskSpec.load(folder)
    assert setup is not None
    assert (setup.task, setup.task_options) == ("sudoku", {"size": 4, "blanks": 8, "notation": "grid"})
    assert (setup.history, setup.instructions, setup.sampling.temperature) == ("current", False, 1.0)


def test_a_policy_for_a_collaboration_is_saved_with_its_task(relay_policy: Path) -> None:
    setup = TaskSpec.load(relay_policy)
    assert setup is not None
    assert (setup.task, setup.task_options) == ("relay", {"size": 4, "speakers": 2})


def test_a_collaboration_without_a_scripted_player_is_rejected(command: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--option", "domain=math", "--option", "scorer=operator:eq")
    code, _, err = command("init-policy", "reasoner_actor", tmp_path / "policy", *options)
    assert code == 1
    assert "an oracle or a scripted player, got 'reasoner_actor' without; choose another task" in err


def test_a_setting_out_of_range_is_refused_before_any_work(command: Callable[..., Any], tmp_path: Path) -> None:
    code, _, err = command("init-policy", "sudoku", tmp_path / "policy", "--quality", 2)
    assert (code, err) == (1, "Error: quality must be in [0, 1], got 2.0; correct it.\n")
    assert not (tmp_path / "policy").exists()


def test_every_action_of_every_game_fits_a_reply() -> None:
    for name in ENVIRONMENTS:
        environment = make(name)
        tokenizer = build_tokenizer(environment, episodes=2)
        state = environment.initial_state(environment.sample_task(0), 0)
        longest = max(
            len(tokenizer(environment.write_action(action))["input_ids"])
            for action in environment.legal_actions(state)
        )
        assert longest + 1 <= MICRO_SAMPLING.max_new_tokens


TALKER = """
from hf_credit.collaborations import Collaboration, Event

class Talker(Collaboration):
    def scripted_player(self, quality):
        return lambda state, request, draws: "word " * 40

def talker():
    events = [Event("talk", role="one")]
    return Talker(roles={"one": "talk"}, events=events, final="talk", scorer=lambda task, text: 1.0)
"""


def test_the_saved_task_has_room_for_the_longest_scripted_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talkers.py").write_text(TALKER)
    monkeypatch.syspath_prepend(tmp_path)
    spec = TaskSpec.of_name("talkers:talker", sampling=MICRO_SAMPLING)
    small = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=2)
    with Progress() as progress:
        create(spec, small, tmp_path / "policy", progress, [{"problem": "what?"}] * 2)
    saved = TaskSpec.load(tmp_path / "policy")
    assert saved is not None
    assert saved.sampling == dataclasses.replace(MICRO_SAMPLING, max_new_tokens=42)  # 40 words, a space, the end


def test_a_policy_from_python_is_evaluated_on_its_recorded_task(command: Callable[..., Any], tmp_path: Path) -> None:
    environment = make("sudoku", size=4, blanks=2)
    oracle = default_oracle(environment)
    assert oracle is not None
    interaction = EnvironmentInteraction(environment, history="current", instructions=False)
    starts = [RolloutRequest[Any](task={"seed": seed}, seed=seed) for seed in range(4)]
    small = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=4)
    folder = init_scripted_policy(
        interaction, OraclePlayer(environment, oracle, 1.0), starts, tmp_path / "policy", small
    )
    spec = TaskSpec.load(folder)
    assert spec is not None
    assert (spec.task, spec.history, spec.sampling) == ("sudoku", "current", MICRO_SAMPLING)
    code, _, err = command("evaluate", folder, "--episodes", 2)
    assert code == 0, err
