"""A user's own task and method, in one file of their folder, work with every command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import finish, start
from small_runs import RECIPE

from hf_credit.tasks import TaskSpec
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.saving import task_spec
from hf_credit.trainers.training import build_trainer

FILE = '''
from dataclasses import dataclass
from typing import Any

from hf_credit.collaborations import Collaboration, Event
from hf_credit.collectors import Group
from hf_credit.environments import Environment, State, Transition
from hf_credit.environments.actions import last_action, plain_action
from hf_credit.methods import Credit, Method
from hf_credit.methods.base import broadcast_to_decisions
from hf_credit.oracles import ValidSetOracle


@dataclass(frozen=True, kw_only=True)
class Heap(State):
    stones: int
    taken: int = 0


class Nim(Environment):
    """Take 1 or 2 stones per turn until exactly none is left; fewer turns are better."""

    name, state_type, task_columns = "nim", Heap, ("stones",)

    def __init__(self, most: int = 4):
        self.most = most

    instructions = "Take stones: <action>take 1</action> or <action>take 2</action>."

    @property
    def max_turns(self):
        return self.most

    def sample_task(self, seed):
        return {"stones": 2 + seed % (self.most - 1)}

    def initial_state(self, task, seed):
        return Heap(seed=seed, stones=task["stones"])

    def observe(self, state):
        return f"stones {state.stones}"

    def legal_actions(self, state):
        few = ("take 1", "take 2")[: state.stones]
        return few if state.status == "active" else ()

    def step(self, state, action):
        if state.status != "active":
            return Transition(state=state, observation=self.observe(state), reward=0.0, terminated=True)
        word = plain_action(action)
        if word not in self.legal_actions(state):
            after = Heap(seed=state.seed, status="invalid", stones=state.stones, taken=state.taken)
        else:
            left = state.stones - int(word[-1])
            after = Heap(
                seed=state.seed, status="active" if left else "finished", stones=left, taken=state.taken + 1
            )
        return Transition(
            state=after,
            observation=self.observe(after),
            reward=self.outcome(after),
            terminated=after.status != "active",
        )

    def outcome(self, state):
        return 1.0 / state.taken if state.status == "finished" else 0.0

    def metrics(self, state):
        return {"success": float(state.status == "finished")}

    def default_oracle(self):
        return Greedy()


class Greedy(ValidSetOracle):
    name, environment_type = "greedy", Nim

    def valid_actions(self, state):
        return frozenset({f"take {min(state.stones, 2)}"}) if state.status == "active" else frozenset()


def right(task, text):
    return float(task["answer"] in text)


def pair(answerer="solver"):
    return Collaboration(
        roles={"planner": "tell", answerer: "say"},
        events=[Event("plan", role="planner"), Event("answer", role=answerer, after="plan")],
        final="answer",
        scorer=right,
    )


@dataclass(frozen=True, kw_only=True)
class Best:
    """Credits the best episode of a task with its outcome minus the mean of the last update."""

    scale: float

    def __call__(self, collected, runner, memory):
        outcomes = [episode.outcome for episode in collected.episodes]
        everyone = runner.gather(outcomes)
        mean = sum(everyone) / max(len(everyone), 1)
        ahead = [self.scale * (one - memory["mean"]) for one in outcomes]
        return Credit(decisions=broadcast_to_decisions(collected, ahead), memory={"mean": mean})


def best(scale: float = 1.0, size: int = 2):
    return Method(name="best", collector=Group(size=size), estimator=Best(scale=scale), memory={"mean": 0.0})
'''


PROGRAM = Path(sys.executable).parent / "hf-credit"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder, with a policy for their environment."""
    folder = tmp_path_factory.mktemp("my_game")
    (folder / "my_game.py").write_text(FILE)
    small = ["--episodes", "64", "--hidden-size", "16", "--layers", "1", "--heads", "2", "--option", "most=3"]
    log = folder / "init-policy.log"
    finish(start(PROGRAM, "init-policy", "my_game:Nim", "base", *small, log=log, folder=folder), log)
    return folder


def recipe(folder: Path, name: str = "recipe", **changed: Any) -> Path:
    values = {
        **RECIPE,
        "method": "my_game:best",
        "method_options": {"scale": 2.0},
        "task": "my_game:Nim",
        "task_options": {"most": 3},
        "history": "current",
        "instructions": False,
        "model_name_or_path": str(folder / "base"),
        "output_dir": str(folder / "run"),
        "temperature": 1.0,
        "max_completion_length": 8,
        "instances_per_update": 4,
        "per_device_train_batch_size": 4,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "save_strategy": "steps",
        "save_steps": 1,
        **changed,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return path


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A run of two updates, trained from the command line in the user's folder."""
    log = folder / "train.log"
    finish(start(PROGRAM, "train", recipe(folder), log=log, folder=folder), log)
    return folder / "run"


def test_a_run_records_its_task_and_its_method(run: Path) -> None:
    for saved in (run, run / "checkpoint-1"):
        spec = TaskSpec.load(saved)
        assert spec is not None
        assert (spec.task, spec.task_options) == ("my_game:Nim", {"most": 3})
        assert spec.method == {"name": "my_game:best", "options": {"scale": 2.0}}
        assert (spec.history, spec.instructions, spec.sampling.max_new_tokens) == ("current", False, 8)


def test_it_is_evaluated_and_diagnosed_without_naming_the_task(
    run: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    code, out, err = command("evaluate", "run", "--episodes", 4, "--trust-remote-code", "--json")
    assert code == 0, err
    assert "success" in json.loads(out)["metrics"]
    few = ("--buckets", 2, "--candidates", 2, "--replays", 2, "--value-actions", 0, "--attempts", 0, "--episodes", 4)
    code, out, err = command("diagnose", "run", *few, "--trust-remote-code", "--json")
    assert code == 0, err
    assert "my_game:best" in json.loads(out)[0]["about"]["methods"]
    few = ("--buckets", 2, "--replays", 1, "--value-actions", 1, "--episodes", 4, "--protocol", "training")
    code, out, err = command("diagnose", "run", *few, "--trust-remote-code", "--json")
    assert code == 0, err
    assert [one["method"] for one in json.loads(out)] == ["my_game:best"]


def test_the_code_that_a_folder_names_is_run_only_with_consent(
    run: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    for what in ("evaluate", "diagnose"):
        code, _, err = command(what, "run", "--episodes", 2)
        assert code == 1
        assert "the files of a policy cannot choose it, got 'my_game:Nim' from hf_credit_task.json" in err
    code, _, err = command("evaluate", "run", "--episodes", 2, "--task", "my_game:Nim")
    assert code == 0, err  # the user named it


def test_a_method_that_the_user_names_may_be_named_in_the_files(
    run: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    few = ("--buckets", 2, "--candidates", 2, "--replays", 2, "--value-actions", 0, "--attempts", 0, "--episodes", 4)
    named = ("--task", "my_game:Nim", "--method", "my_game:best")
    code, out, err = command("diagnose", "run", *few, *named, "--json")
    assert code == 0, err
    assert "my_game:best" in json.loads(out)[0]["about"]["methods"]


def test_it_resumes_and_refuses_another_game_and_another_method(
    run: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(run.parent)
    shutil.copytree(run / "checkpoint-1", tmp_path / "again" / "checkpoint-1")
    again = {"output_dir": str(tmp_path / "again"), "resume_from_checkpoint": str(tmp_path / "again" / "checkpoint-1")}
    for changed, reason in (
        ({"task_options": {"most": 4}}, "task.task_options.most 4 in place of 3"),
        ({"task": "tic_tac_toe", "task_options": {}}, "task.task 'tic_tac_toe' in place of"),
        ({"history": "append"}, "task.history 'append' in place of 'current'"),
        ({"method_options": {"scale": 3.0}}, "method.estimator.scale 3.0 in place of 2.0"),
    ):
        code, _, err = command(
            "train", recipe(tmp_path, model_name_or_path=str(run.parent / "base"), **again, **changed)
        )
        assert (code, reason in err) == (1, True), err
    code, _, err = command("train", recipe(tmp_path, model_name_or_path=str(run.parent / "base"), **again))
    assert code == 0, err
    whole, resumed = (
        [json.loads(line) for line in (where / "metrics.jsonl").read_text().splitlines()]
        for where in (run, tmp_path / "again")
    )
    assert resumed[0]["step"] == 2
    assert resumed[0]["reward"] == whole[1]["reward"]


def test_a_users_collaboration_is_trained_on_and_evaluated(
    run: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(run.parent)
    (tmp_path / "rows.jsonl").write_text('{"problem": "stones 3", "answer": "2"}\n' * 8)
    changed: dict[str, Any] = {
        "history": None,
        "instructions": None,
        "task": "my_game:pair",
        "task_options": {"answerer": "actor"},
        "dataset_name": str(tmp_path / "rows.jsonl"),
        "save_strategy": "no",
        "max_steps": 1,
        "model_name_or_path": str(run.parent / "base"),
        "output_dir": str(tmp_path / "together"),
    }
    code, _, err = command("train", recipe(tmp_path, **changed))
    assert code == 0, err
    spec = TaskSpec.load(tmp_path / "together")
    assert spec is not None
    assert (spec.task, spec.task_options) == ("my_game:pair", {"answerer": "actor"})
    rows = ("--dataset", tmp_path / "rows.jsonl", "--episodes", 4)
    code, _, err = command("evaluate", tmp_path / "together", *rows, "--trust-remote-code")
    assert code == 0, err


def test_a_users_oracle_verifies(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(run.parent)
    for method in ("verifiable_process", "outcome_reward"):
        path = recipe(tmp_path, method=method, method_options=None, oracle="my_game:Greedy")
        values = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**values, "model_name_or_path": str(run.parent / "base")}))
        trainer = build_trainer(read_job(["--config", str(path)]))
        assert type(trainer.method.collector.oracle).__name__ == "Greedy"
        saved = task_spec(trainer.evaluation_interaction, trainer.method, trainer.args).method
        assert saved["name"] == method
        assert saved["options"]["oracle"]["name"] == "my_game:Greedy"


def test_a_users_environment_is_played(folder: Path) -> None:
    words = [sys.executable, "-m", "hf_credit.cli", "play", "my_game:Nim", "--seed", "0"]
    done = subprocess.run(words, cwd=folder, input="?\ntake 2\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "The oracle accepts: take 2" in done.stdout
    assert "finished: success 1" in done.stdout


def test_entry_points_of_a_package_are_listed_and_made(
    folder: Path, tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "my_game-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-game\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[hf_credit.environments]\nnim = my_game:Nim\n"
        "[hf_credit.collaborations]\npair = my_game:pair\n"
        "[hf_credit.oracles]\ngreedy = my_game:Greedy\n"
        "[hf_credit.methods]\nbest = my_game:best\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(folder)
    code, out, err = command("envs")
    assert code == 0, err
    assert all(word in out for word in ("nim", "most=4", "greedy", "pair", "answerer=solver"))
    assert TaskSpec.of_name("nim").complete() == TaskSpec(task="nim", task_options={"most": 4})
    assert TaskSpec.of_name("pair").build().max_replies == 2
    from hf_credit import methods, oracles

    assert methods.make("best", scale=3.0).spec() == {"name": "best", "options": {"scale": 3.0}}
    assert oracles.spec(oracles.make("greedy")) == ("greedy", {})
