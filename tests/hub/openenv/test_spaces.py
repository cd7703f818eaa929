"""Every environment is a Space that openenv accepts unchanged, and that keeps what it declares."""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hf_credit._version import __version__
from hf_credit.cli import main
from hf_credit.environments import ENVIRONMENTS, make
from hf_credit.environments.tasks import task_seed
from hf_credit.hub.spaces import space_files, write_space

SPACES = Path(__file__).resolve().parents[3] / "hub_assets" / "environments"
NAMES = sorted(ENVIRONMENTS)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def session(served: str, name: str) -> Any:
    from openenv.core import GenericEnvClient

    return GenericEnvClient(base_url=f"{served}/{name}").sync()


@pytest.fixture
def openenv() -> Callable[..., Any]:
    """Runs openenv's command."""
    from openenv.cli.__main__ import app

    return lambda *words: CliRunner().invoke(app, list(words))


def oracle(name: str) -> Any:
    return json.loads((SPACES / name / "validation" / "oracle.json").read_text())


def plan(name: str) -> Any:
    return json.loads((SPACES / name / "validation" / "runtime.json").read_text())


def play(client: Any, actions: Any, **reset: Any) -> list[tuple[str, Any, bool]]:
    """What an episode shows, pays and whether it is over, from reset on."""
    results = [client.reset(**reset), *map(client.step, actions)]
    return [(one.observation["text"], one.reward, one.done) for one in results]


# The folders


def test_the_committed_folders_are_what_the_environments_say_of_themselves() -> None:
    assert sorted(one.name for one in SPACES.iterdir()) == NAMES
    for name in NAMES:
        there = {
            path.relative_to(SPACES / name).as_posix(): path.read_bytes()
            for path in (SPACES / name).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert there == space_files(name), f"{name}: run make spaces"


@pytest.mark.parametrize("name", NAMES)
def test_openenv_validates_the_folder_unchanged(openenv: Callable[..., Any], name: str) -> None:
    result = openenv("validate", str(SPACES / name), "--level", "static")
    assert result.exit_code == 0, result.output
    assert "PASS  static.manifest" in result.output


def test_a_space_whose_observations_are_images_is_refused_before_it_is_published() -> None:
    with pytest.raises(ValueError, match="a message must be text or parts of text"):
        space_files("sudoku", {"size": 4, "notation": "picture"})


def test_options_are_written_out_and_what_cannot_travel_is_refused(tmp_path: Path) -> None:
    folder = write_space(tmp_path / "space", "sudoku", {"size": 4, "blanks": 3}, title="Small")
    declared = yaml.safe_load((folder / "openenv.yaml").read_text())["hf_credit"]
    assert declared == {
        "environment": "sudoku",
        "options": {"size": 4, "blanks": 3, "notation": "grid"},
        "version": __version__,
    }
    with pytest.raises(ValueError, match="must not name code or files, got 'os:system'"):
        space_files("situation_puzzles", {"judge": "os:system"})
    (tmp_path / "mine.json").write_text("[]")
    with pytest.raises(ValueError, match=r"one of the environments .* got 'gymnasium'"):
        space_files("gymnasium", {"id": "FrozenLake-v1"})


def test_the_library_travels_as_a_wheel_which_the_image_installs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_space(tmp_path / "space", "sudoku", {"size": 4, "blanks": 3})
    (named,) = re.findall(r"--no-deps (\S+)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
    with zipfile.ZipFile(folder / named) as wheel:
        assert "hf_credit/environments/openenv_server.py" in wheel.namelist()
    with pytest.raises(SystemExit):
        main(["publish", "environment", "sudoku", "me/sudoku", "-o", "size=4", "-o", "blanks=3", "--dry-run"])
    assert named in capsys.readouterr().out


# The server. `served` starts where torch and everything else that an image does not have cannot be imported.


@pytest.mark.parametrize("name", NAMES)
def test_openenv_validates_the_server(openenv: Callable[..., Any], served: str, name: str) -> None:
    result = openenv("validate", "--url", f"{served}/{name}", "--timeout", "30")
    assert result.exit_code == 0, result.output


class Running:
    """Stands in for a container: the same server, on this machine."""

    name = "here"
    supported_network_modes = frozenset({"no-network"})

    def __init__(self, base_url: str) -> None:
        from openenv.validation.types import ProviderCapability

        self.base_url = base_url
        self.capabilities = frozenset({ProviderCapability.IMAGE_BUILD})

    def build(self, root: Path, execution: Any) -> str:
        return "sha256:" + "0" * 64

    def start(self, spec: Any) -> Running:
        return self

    def inspect(self) -> dict[str, Any]:
        return {}

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("name", NAMES)
def test_openenv_runs_its_own_episode_through_all_that_it_checks(served: str, name: str) -> None:
    from openenv.validation import Level, run_validation

    report = run_validation(SPACES / name, max_level=Level.SEMANTIC, provider=Running(f"{served}/{name}"))
    status = {one.check_id: one.status.value for one in report.results}
    checked = ("startup", "reward_well_formed", "observation_schema", "state_contract")
    assert {one: status[f"runtime.{one}"] for one in checked} == dict.fromkeys(checked, "pass")
    assert set(status.values()) == {"pass", "skip"}
    assert "fail" not in report.verdict.value


# What openenv 0.10 names and does not check yet


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_earns_the_highest_reward_and_random_play_does_not(served: str, name: str) -> None:
    low, high = make(name).reward_range or (0, 0)
    known = oracle(name)
    with session(served, name) as client:
        (*_, (_, reward, done)) = play(client, known["actions"], **known["reset"])
        assert (reward, done) == (high, True)
        assert play(client, plan(name)["actions"], seed=plan(name)["reset"]["seed"])[-1][1] == high
        floor = [_random_return(client, make(name), seed) for seed in range(12)]
    assert all(low <= one <= high for one in floor)
    assert high - sum(floor) / len(floor) >= 0.1


def _random_return(client: Any, environment: Any, seed: int) -> float:
    draws, total, result = random.Random(seed), 0.0, client.reset(seed=seed)
    while not result.done:
        world = environment.state_type.from_json(client.state()["environment_state"])
        result = client.step({"action": draws.choice(environment.legal_actions(world))})
        total += result.reward
    return total


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_follows_from_its_seed_and_actions_and_is_its_own(served: str, name: str) -> None:
    actions, seed = plan(name)["actions"], plan(name)["reset"]["seed"]
    with session(served, name) as first, session(served, name) as second:
        alone = play(first, actions, seed=seed)
        # Interleaved with another episode of the same server, and begun after one.
        mixed, others = [first.reset(seed=seed)], [second.reset(seed=seed + 1)]
        for action in actions:
            mixed.append(first.step(action))
            if not others[-1].done:
                others.append(second.step(action))
        assert [(one.observation["text"], one.reward, one.done) for one in mixed] == alone
        assert len({play(first, [], seed=one)[0][0] for one in range(8)} | {first.state()["environment_state"]}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_goes_on_from_any_of_its_states_in_another_session(served: str, name: str) -> None:
    actions, seed = plan(name)["actions"], plan(name)["reset"]["seed"]
    with session(served, name) as first, session(served, name) as second:
        whole = play(first, actions, seed=seed)
        first.reset(seed=seed)
        for turn in range(min(4, len(actions))):
            state = json.loads(json.dumps(first.state()))
            again = play(second, actions[turn:], injected_state=state)
            assert again[0][0] == whole[turn][0]
            assert again[1:] == whole[turn + 1 :]
            assert second.state()["step_count"] == len(actions)
            first.step(actions[turn])


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_ends_after_the_most_turns_and_earns_nothing_later(served: str, name: str) -> None:
    action, seed = plan(name)["actions"][0], plan(name)["reset"]["seed"]
    with session(served, name) as client:
        client.reset(seed=seed)
        state = client.state() | {"step_count": make(name).max_turns - 1}
        client.reset(injected_state=state)
        assert client.step(action).done
        after = client.state()
        last = client.step(action)
        assert (last.reward, last.done, client.state()) == (0, True, after)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_state_says_what_is_hidden(served: str, name: str) -> None:
    with session(served, name) as client:
        result = client.reset(split="held_out", index=3, episode_id="mine")
        state = client.state()
        assert (state["episode_id"], state["seed"]) == ("mine", task_seed("held_out", 3))
        environment = make(name)
        world = environment.state_type.from_json(state["environment_state"])
        assert set(result.observation) == {"text", "metadata"}
        assert result.observation["text"] == environment.observe(world)
        assert result.metadata == {"instructions": environment.instructions}
        after = client.step({"action": environment.write_action(environment.legal_actions(world)[0])})
        assert set(after.metadata) == {"action", "metrics"}
    answer = requests_get(f"{served}/{name}/{name}/task", {"split": "held_out", "index": 3})
    seed = task_seed("held_out", 3)
    assert answer == {"task": {"id": "held_out-3", "split": "held_out", "index": 3, "seed": seed}}


def requests_get(url: str, body: dict[str, Any]) -> Any:
    import requests

    answer = requests.post(url, json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


def test_the_task_api_names_tasks_that_reset_begins(served: str) -> None:
    import requests

    at = f"{served}/sudoku/sudoku"
    assert requests.get(f"{at}/splits", timeout=30).json() == [
        {"name": "train", "type": "train"},
        {"name": "held_out", "type": "test"},
    ]
    assert requests_get(f"{at}/num_tasks", {"split": "train"}) == {"num_tasks": 2**31}
    tasks = requests_get(f"{at}/task_range", {"split": "train", "start": 2**31 - 2})["tasks"]
    assert [one["index"] for one in tasks] == [2**31 - 2, 2**31 - 1]
    with session(served, "sudoku") as client:
        by_index = play(client, [], split="train", index=7)
        assert by_index == play(client, [], seed=task_seed("train", 7))
        assert client.reset().observation["text"]  # without a seed one is drawn, and told
        drawn = client.state()["seed"]
        assert play(client, [], seed=drawn)[0][0] == client.reset(seed=drawn).observation["text"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"sed": 1}, "reset takes seed, episode_id, split, index and injected_state, got sed; leave the others out."),
        ({"split": "train"}, "split must come with index, got 'train' without one; pass, for example, index=0."),
        ({"split": "test", "index": 0}, "split must be one of train, held_out, got 'test'; pick one."),
        ({"index": -1}, "a task's index must be a whole number from 0 to 2147483647, got -1; correct it."),
        ({"injected_state": {"environment_state": "{}"}}, "injected_state must be an earlier state, got"),
        ({"injected_state": {}}, "injected_state must be an earlier state, got"),
        (
            {"injected_state": {"environment_state": '{"seed": [[1]], "board": 1}'}},
            "injected_state must be an earlier state",
        ),
    ],
)
def test_a_wrong_argument_of_reset_is_told_in_one_sentence(served: str, wrong: Any, sentence: str) -> None:
    with session(served, "tic_tac_toe") as client:
        with pytest.raises(RuntimeError) as error:
            client.reset(**wrong)
        assert sentence in str(error.value)
        with pytest.raises(RuntimeError, match="reset must be called before the first step"):
            client.step({"action": "place 1 1"})


def test_the_client_in_the_folder_plays_with_openenv_alone(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPACES))
    package: Any = importlib.import_module("tic_tac_toe")
    try:
        with package.TicTacToeEnv(base_url=f"{served}/tic_tac_toe").sync() as client:
            result = client.reset(seed=0)
            assert result.observation.text.startswith("You are O.")
            result = client.step(package.TicTacToeAction(action="<action>place 2 2</action>"))
            assert result.observation.metadata["action"] == "place 2 2"
            assert client.state().step_count == 1
    finally:
        for name in [one for one in sys.modules if one.partition(".")[0] == "tic_tac_toe"]:
            del sys.modules[name]
