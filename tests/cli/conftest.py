"""Runs commands as a user does, and a small training run that several test modules share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from small_runs import RECIPE, SAMPLED

from hf_credit.cli import main

_command_of = functools.cache(typer.main.get_command)  # a process builds its commands once


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`command("play", "sudoku")` runs `hf-credit play sudoku` in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "path", list(sys.path))  # a command may change how modules are found
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        monkeypatch.setenv("PYTHONSAFEPATH", "1")  # and sets this
        monkeypatch.setattr(typer.main, "get_command", _command_of)
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        code = ended.value.code
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return run


def micro_recipe(policy: Path, output: Path, **changed: Any) -> dict[str, Any]:
    """A recipe for two updates of eight episodes on 4x4 Sudoku."""
    return {
        **RECIPE,
        **SAMPLED,
        "method": "verifiable_process",
        "task": "sudoku",
        "task_options": {"size": 4, "blanks": 4},
        "model_name_or_path": str(policy),
        "output_dir": str(output),
        "history": "current",
        "instructions": False,
        "max_completion_length": 12,
        "instances_per_update": 8,
        "per_device_train_batch_size": 8,
        "max_steps": 2,
        "learning_rate": 1e-3,
        **changed,
    }


def written(path: Path, recipe: Callable[..., dict[str, Any]], policy: Path, **changed: Any) -> Path:
    """Writes a recipe, with its run in the same folder."""
    path.write_text(yaml.safe_dump(recipe(policy, path.with_name("run"), **changed)))
    return path


@pytest.fixture
def recipe(tmp_path: Path, micro_policy: Path) -> Callable[..., Path]:
    """`recipe(max_steps=1)` writes a small recipe and returns its path."""

    return functools.partial(written, tmp_path / "recipe.yaml", micro_recipe, micro_policy)


@pytest.fixture(scope="session")
def relay_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny policy for the relay of four numbers."""
    folder = tmp_path_factory.mktemp("relay") / "policy"
    small = ["--option", "size=4", "--episodes", "64", "--hidden-size", "16", "--layers", "1", "--heads", "2"]
    with pytest.raises(SystemExit) as ended:
        main(["init-policy", "relay", str(folder), *small])
    assert ended.value.code == 0
    return folder


def relay_recipe(policy: Path, output: Path, **changed: Any) -> dict[str, Any]:
    """A recipe for two updates of four relay tasks."""
    recipe = micro_recipe(policy, output, method="replay_loo", task="relay", max_context_tokens=None)
    for of_a_game in ("task_options", "history", "instructions"):
        del recipe[of_a_game]
    small = {"instances_per_update": 4, "per_device_train_batch_size": 4, "task_options": {"size": 4}}
    return {**recipe, **small, **changed}


@pytest.fixture
def together(tmp_path: Path, relay_policy: Path) -> Callable[..., Path]:
    """`together(max_steps=1)` writes a small recipe for the relay and returns its path."""

    return functools.partial(written, tmp_path / "relay.yaml", relay_recipe, relay_policy)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory, micro_policy: Path) -> Path:
    """The folder of a run of two updates with a checkpoint after the first."""
    folder = tmp_path_factory.mktemp("trained")
    values = micro_recipe(micro_policy, folder / "run", save_strategy="steps", save_steps=1, save_total_limit=2)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(SystemExit) as ended:
        main(["train", str(folder / "recipe.yaml")])
    assert ended.value.code == 0
    return folder / "run"
