"""The commands that others print at their end run as they are printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_agents import ROWS, settings
from small_runs import RECIPE, SUDOKU

OWN = """
from hf_credit.collaborations import Collaboration, Event
from hf_credit.environments.sudoku import Sudoku
from hf_credit.oracles import make

class Small(Sudoku):
    name = "small"

    def __init__(self, size: int = 4, blanks: int = 4):
        super().__init__(size=size, blanks=blanks)

    def default_oracle(self):
        return make("sudoku_constraints")

def right(task, text):
    return float(task["answer"] in text)

def alone(scorer):
    return Collaboration(
        roles={"solver": "say"}, events=[Event("answer", role="solver")], final="answer", scorer=right
    )

def likes(task, text):
    return float("a" in text)

def play(state, request, random):
    return "a"
"""
COMMAND = """
import json, os, sys, urllib.request

task = json.load(sys.stdin)
call = {"model": "policy", "messages": [{"role": "user", "content": task["wanted"]}], "max_tokens": 4}
head = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(call).encode(), head)) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user, with code of their own and a space in its name."""
    here = tmp_path / "my work"
    here.mkdir()
    (here / "own_tasks.py").write_text(OWN)
    rows = [{"problem": "1 + 1", "answer": "2"}] * 4
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (here / "shop.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS * 4))
    monkeypatch.chdir(here)
    return here


def suggested(out: str) -> list[list[str]]:
    """The words of each command that an output suggests."""
    told = re.search(r"(?:Try|Next): (.*)", out)
    assert told is not None, out
    return [words[1:] for words in map(shlex.split, told[1].split("; ")) if words[0] == "hf-credit"]


def written(folder: Path, **values: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def shop(folder: Path, policies: Callable[[str], Path]) -> dict[str, Any]:
    shutil.copytree(policies("shop_policy"), folder / "policy", dirs_exist_ok=True)
    return {**RECIPE, **settings(folder / "the run", max_steps=1, model_name_or_path="policy"), "method": "grpo"}


def environment(folder: Path, policies: Callable[[str], Path]) -> dict[str, Any]:
    named = {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}}
    model = {"model_name_or_path": str(policies("micro_policy")), "output_dir": str(folder / "the run")}
    return {**SUDOKU, **named, **model, "method": "verifiable_process", "max_steps": 1, "temperature": 1.0}


def own_environment(folder: Path, policies: Callable[[str], Path]) -> dict[str, Any]:
    return {**environment(folder, policies), "task": "own_tasks:Small", "method": "outcome_reward"}


def own_collaboration(folder: Path, policies: Callable[[str], Path]) -> dict[str, Any]:
    of_games = ("task", "task_options", "history", "instructions")
    known = {name: value for name, value in environment(folder, policies).items() if name not in of_games}
    named = {"task": "own_tasks:alone", "task_options": {"scorer": "own_tasks:right"}}
    rows = {"dataset_name": "rows.jsonl", "instances_per_update": 4, "per_device_train_batch_size": 4}
    return {**known, **named, **rows, "method": "outcome_reward"}


def program(folder: Path, policies: Callable[[str], Path]) -> dict[str, Any]:
    named = {"task": "agent", "task_options": {"agent": "agent_shop:shop"}}
    return {**shop(folder, policies), **named, "dataset_name": "shop.jsonl"}


def command_of_a_program(folder: Path, policies: Callable[[str], Path]) -> dict[str, Any]:
    """The same program, as a command with its columns."""
    (folder / "shop.py").write_text(COMMAND)
    agent = shlex.join([sys.executable, str(folder / "shop.py")])
    options = {"agent": agent, "columns": ["wanted"], "score": "own_tasks:likes"}
    return {**program(folder, policies), "task_options": options}


@pytest.mark.parametrize("kind", [environment, own_environment, own_collaboration, program, command_of_a_program])
def test_what_a_training_suggests_runs_as_it_is_printed(
    kind: Callable[..., Any], folder: Path, command: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    recipe = written(folder, **kind(folder, request.getfixturevalue))
    code, out, err = command("train", recipe)
    assert code == 0, err
    found = suggested(out)
    assert [words[0] for words in found] == ["evaluate", "report"]
    run_all(found, command)


@pytest.mark.parametrize(
    "words",
    [
        ("--recipe", "recipe.yaml", "--script", "own_tasks:play"),
        (
            "--task",
            "agent",
            "--option",
            "agent=agent_shop:shop",
            "--dataset",
            "shop.jsonl",
            "--script",
            "own_tasks:play",
        ),
    ],
)
def test_what_a_warm_up_of_a_program_suggests_runs_as_it_is_printed(
    words: tuple[str, ...], folder: Path, command: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    written(folder, **program(folder, request.getfixturevalue))
    learning = ("--max_steps", 1, "--use_cpu", "true", "--bf16", "false", "--min-success", -1, "--output", "warm")
    code, out, err = command("warm-up", "policy", *words, *learning)
    assert code == 0, err
    (words,) = suggested(out)
    assert words[:2] == ["evaluate", "warm"]
    run_all([words, ["report", "warm"]], command)


def test_a_warm_up_without_a_task_suggests_no_command(
    folder: Path, command: Callable[..., Any], micro_policy: Path
) -> None:
    logs = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (folder / "logs.jsonl").write_text(json.dumps(logs) + "\n")
    learning = ("--max_steps", 1, "--use_cpu", "true", "--bf16", "false", "--output", "warm")
    code, out, err = command("warm-up", micro_policy, "--traces", "logs.jsonl", *learning)
    assert code == 0, err
    assert "It has no task" in out
    assert "hf-credit" not in out


def test_what_init_policy_suggests_runs_as_it_is_printed(folder: Path, command: Callable[..., Any]) -> None:
    small = ("--episodes", 8, "--hidden-size", 16, "--layers", 1, "--heads", 2, "--option", "blanks=2")
    code, out, err = command("init-policy", "own_tasks:Small", "a base", *small)
    assert code == 0, err
    run_all(suggested(out), command)


def run_all(found: list[list[str]], command: Callable[..., Any]) -> None:
    assert found
    for words in found:
        code, _, err = command(*words)
        assert code == 0, (words, err)
