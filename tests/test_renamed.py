"""A script, a recipe or a file of the version before is read as one with the new names."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_credit.checkpoints import refuse_another_run, write_manifest
from hf_credit.recipes import RECIPES
from hf_credit.renamed import REMOVED, TASK_KEYS
from hf_credit.rollouts import capabilities
from hf_credit.tasks import TASK_FILE, TaskSpec
from hf_credit.trainers import recipes
from hf_credit.trainers.recipes import Job, read_job

ROOT = Path(__file__).resolve().parents[1]
SHARED = {"model_name_or_path": "policy", "use_cpu": True, "bf16": False, "report_to": "none"}
RELAY = {"task": "relay", "task_options": {"size": 4}}


def read(folder: Path, values: dict[str, Any], *words: str) -> Job:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**SHARED, "output_dir": str(folder), **values}))
    return read_job(["--config", str(path), *words])


@pytest.mark.parametrize(
    ("old", "new", "words", "names"),
    [
        (
            {"environment": "sudoku", "environment_options": {"size": 4}},
            {"task": "sudoku", "task_options": {"size": 4}},
            (),
            ["environment", "environment_options"],
        ),
        (
            {"method": "grpo", "collaboration": "relay", "collaboration_options": {"size": 4}},
            {"method": "grpo", **RELAY},
            (),
            ["collaboration", "collaboration_options"],
        ),
        (
            {"method": "grpo", "agent": "node agent.js", "collaboration_options": {"columns": ["question"]}},
            {
                "method": "grpo",
                "task": "agent",
                "task_options": {"columns": ["question"], "agent": "node agent.js"},
            },
            (),
            ["collaboration_options", "agent"],
        ),
        (
            {"method": "grpo", **RELAY, "seam": "asynchronous"},
            {"method": "grpo", **RELAY, "training": "asynchronous"},
            (),
            ["seam"],
        ),
        (
            {"task": "minesweeper"},
            {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}},
            ("--environment=sudoku", "--environment-options", '{"size": 4, "blanks": 4}', "--seam", "synchronous"),
            ["--environment", "--environment_options", "--seam"],
        ),
    ],
)
def test_a_recipe_and_a_command_line_with_old_names_are_read_with_one_warning_for_each(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], words: tuple[str, ...], names: list[str]
) -> None:
    with pytest.warns(FutureWarning) as told:
        job = read(tmp_path, old, *words)
    sentence = re.compile(r"(\S+) is deprecated and goes with the next version; write .+\.$")
    assert [match[1] for one in told if (match := sentence.match(str(one.message)))] == names
    assert job.config() == read(tmp_path, new).config()


@pytest.mark.parametrize("name", REMOVED)
def test_a_setting_that_is_gone_is_told_in_one_sentence(tmp_path: Path, name: str) -> None:
    for values, words in (({name: 1}, ()), ({}, (f"--{name}", "1"))):
        with pytest.raises(ValueError, match=rf"^a recipe has .*; {name} is no setting any more: [^\n]+ it out\.$"):
            read(tmp_path, {"method": "ppo", **RELAY, **values}, *words)


def test_one_task_cannot_be_named_twice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task must be given once, got 'relay' and environment 'sudoku'; leave on"):
        read(tmp_path, {**RELAY, "environment": "sudoku"})
    with (
        pytest.warns(FutureWarning, match="^agent is deprecated"),
        pytest.raises(ValueError, match="task must be given once, got 'relay' and agent 'agent'; leave one out"),
    ):
        read(tmp_path, {**RELAY, "method": "grpo", "agent": "node agent.js"})


def test_a_script_with_old_names_works() -> None:
    old: Any = {"environment": "sudoku", "history": "current"}
    with pytest.warns(FutureWarning, match="^environment is deprecated .* write task.$"):
        spec = TaskSpec(**old)
    assert spec == TaskSpec(task="sudoku", history="current")
    for name, new in {
        "Answered": "GoldAnswer",
        "Bounded": "OutcomeRange",
        "Judged": "TaskCriteria",
        "Learned": "TrainedRoles",
        "Metered": "Costs",
        "Shown": "ContextStyle",
    }.items():
        with pytest.warns(FutureWarning, match=f"capabilities.{name} is deprecated .* write {new}"):
            assert getattr(capabilities, name) is getattr(capabilities, new)
    name = "GameArguments"
    with pytest.warns(FutureWarning, match="write TaskArguments"):
        assert getattr(recipes, name) is recipes.TaskArguments
    name = "Unheard"
    with pytest.raises(AttributeError, match=r"module 'hf_credit\.rollouts\.capabilities' has no attribute 'Unheard'"):
        getattr(capabilities, name)


@pytest.mark.parametrize(("kind", "other"), [("environment", "collaboration"), ("collaboration", "environment")])
def test_a_task_file_of_the_version_before_is_read_without_a_word(tmp_path: Path, kind: str, other: str) -> None:
    name = {"environment": "sudoku", "collaboration": "relay"}[kind]
    spec = TaskSpec(task=name, task_options={"size": 4})
    values = spec.to_dict()
    old = {key: value for key, value in values.items() if not key.startswith("task")}
    old |= {kind: name, f"{kind}_options": {"size": 4}, other: None, f"{other}_options": {}}
    (tmp_path / TASK_FILE).write_text(json.dumps(old))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TaskSpec.load(tmp_path) == spec
    spec.save(tmp_path)
    assert not json.loads((tmp_path / TASK_FILE).read_text()).keys() & TASK_KEYS.keys()


def test_a_checkpoint_of_the_version_before_is_resumed_by_the_same_task_alone(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"task": {"environment": "sudoku", "environment_options": {"size": 4}, "max_turns": 9}})
    now = {"task": "sudoku", "task_options": {"size": 4}, "max_turns": 9}
    refuse_another_run(tmp_path, {"task": now}, [])
    with pytest.raises(ValueError, match=r"got task\.task_options\.size 6 in place of 4 in"):
        refuse_another_run(tmp_path, {"task": {**now, "task_options": {"size": 6}}}, [])


SOURCES = [*RECIPES.values(), *(ROOT / "examples").glob("*/*.yaml"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_we_show_has_no_old_name(path: Path) -> None:
    keys = re.findall(r"^(environment|collaboration|agent|seam)(?:_options)?:", path.read_text(), re.MULTILINE)
    flags = re.findall(r"--(?:environment|collaboration|seam)\b", path.read_text())
    assert keys + flags == []
