from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import DatasetDict

from hf_credit import VerifiableProcessTrainer
from hf_credit.cli.training import METHODS, build_trainer, read_job
from hf_credit.environments import make
from hf_credit.environments.tasks import tasks
from hf_credit.evaluation.runs import write_config
from hf_credit.evaluation.setup import GameSetup, Sampling

TRAINERS = Path(__file__).resolve().parents[2] / "trainers"
RECIPES = sorted(path for method in METHODS for path in (TRAINERS / method).glob("*.yaml"))
# Tests have no GPU; half precision wants one, or to be told that there is none.
ON_CPU = ("--use_cpu", "true")


def problem(path: Path, *arguments: str) -> str:
    with pytest.raises((ValueError, OSError)) as error:
        read_job(["--config", str(path), *arguments])
    return str(error.value)


# Recipes


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_complete_and_its_game_can_be_made(path: Path) -> None:
    job = read_job(["--config", str(path), *ON_CPU])
    assert job.game.method == path.parent.name
    assert job.args.trajectories_per_update == {"verifiable_process": 128}.get(job.game.method, 32)
    assert job.setup().name == (job.game.environment or job.game.collaboration)
    assert job.args.output_dir == f"runs/{path.stem}"
    assert job.model.model_name_or_path


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_settings_that_a_run_writes_are_a_recipe_for_the_same_run(path: Path, tmp_path: Path) -> None:
    job = read_job(["--config", str(path), *ON_CPU, "--chat_template_kwargs", '{"enable_thinking": false}'])
    write_config(tmp_path / "config.yaml", job.config())
    again = read_job(["--config", str(tmp_path / "config.yaml")])
    assert again.config() == job.config()
    assert again.args.generation_batch_size == job.args.generation_batch_size


def test_every_method_has_recipes() -> None:
    assert {path.parent.name for path in RECIPES} == set(METHODS)


def test_the_papers_settings_are_in_the_papers_recipe() -> None:
    (path,) = (path for path in RECIPES if path.stem == "qwen3_4b_sudoku")
    job = read_job(["--config", str(path), *ON_CPU])
    args = job.args
    assert job.model.model_name_or_path == "Qwen/Qwen3-4B"
    assert job.game.environment_options == {"size": 9, "blanks": 40}
    assert (args.max_steps, args.lr_scheduler_type, args.warmup_steps) == (100, "cosine", 5)
    assert (args.temperature, args.top_p, args.top_k) == (0.6, 0.95, 20)
    assert (args.discount, args.beta, args.process_reward) == (0.0, 0.0, "oracle")


# Overriding


def test_what_stands_behind_the_recipe_wins(recipe: Callable[..., Path]) -> None:
    job = read_job(
        [
            "--config",
            str(recipe()),
            "--max_steps=7",
            "--learning_rate",
            "5e-4",
            "--process_reward",
            "outcome",
            "--environment_options",
            '{"size": 6}',
            "--use_peft",
            "--lora_r",
            "4",
        ]
    )
    assert (job.args.max_steps, job.args.learning_rate, job.args.process_reward) == (7, 5e-4, "outcome")
    assert job.game.environment_options == {"size": 6}
    assert (job.model.use_peft, job.model.lora_r) == (True, 4)


def test_the_settings_hold_no_token(recipe: Callable[..., Path]) -> None:
    job = read_job(["--config", str(recipe()), "--hub_token", "hf_abc"])
    write_config(recipe().with_name("out.yaml"), job.config())
    text = recipe().with_name("out.yaml").read_text()
    assert "hub_token" not in text
    assert "hf_abc" not in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--max_steps", "many"), "invalid int value: 'many'"),
        (("--nonsense", "1"), "of TRL's ModelConfig and of GameArguments, got --nonsense 1"),
        (("--method", "magic"), "method must be one of verifiable_process, replay_loo, got 'magic'"),
        (("--environment_options", "size"), "environment_options must be a mapping, got 'size'"),
        (("--oracle_options", '{"seed": 1}'), "oracle_options need an oracle"),
        (("--process_reward", "luck"), "process_reward must be one of"),
        (("--per_device_train_batch_size", "3"), "must be a multiple of per_device_train_batch_size"),
        (("--dtype", "float7"), "invalid choice: 'float7'"),
    ],
)
def test_a_wrong_field_is_refused(recipe: Callable[..., Path], arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in problem(recipe(), *arguments)


def test_a_wrong_recipe_is_refused(recipe: Callable[..., Path], tmp_path: Path) -> None:
    assert "got --spped 1" in problem(recipe(spped=1))
    assert "model_name_or_path must name a model" in problem(recipe(model_name_or_path=None))
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    assert "must be a YAML mapping" in problem(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    assert "must be YAML" in problem(tmp_path / "broken.yaml")
    assert "No such file" in problem(tmp_path / "nowhere.yaml")


def test_the_method_may_be_left_to_the_command_line(recipe: Callable[..., Path]) -> None:
    values = yaml.safe_load(recipe().read_text())
    del values["method"]
    recipe().write_text(yaml.safe_dump(values))
    path = recipe().with_name("without.yaml")
    path.write_text(yaml.safe_dump(values))
    assert read_job(["--config", str(path)]).game.method == "verifiable_process"


# Building


def test_a_job_becomes_a_trainer_and_the_setup_that_evaluation_needs(recipe: Callable[..., Path]) -> None:
    trainer, setup = build_trainer(
        read_job(["--config", str(recipe(oracle="sudoku_constraints", max_turns=3)), "--use_peft", "--lora_r", "2"])
    )
    assert isinstance(trainer, VerifiableProcessTrainer)
    assert trainer.oracle.name == "sudoku_constraints"
    assert any("lora" in name for name, _ in trainer.model.named_parameters())
    assert setup == GameSetup(
        environment="sudoku",
        environment_options={"size": 4, "blanks": 4},
        history="current",
        instructions=False,
        max_turns=3,
        sampling=Sampling(max_new_tokens=12, temperature=1.0, top_p=1.0, top_k=0),
    )


@pytest.mark.parametrize("form", ["folder", "folder of splits", "jsonl", "parquet"])
def test_task_rows_may_come_from_a_dataset(recipe: Callable[..., Path], tmp_path: Path, form: str) -> None:
    rows = tasks(make("sudoku", size=4, blanks=4), "train", size=24, start=100)
    path = tmp_path / {"jsonl": "rows.jsonl", "parquet": "rows.parquet"}.get(form, "rows")
    match form:
        case "folder":
            rows.save_to_disk(path)
        case "folder of splits":
            DatasetDict({"train": rows, "test": rows.select(range(8))}).save_to_disk(path)
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "parquet":
            rows.to_parquet(path)
    arguments = ["--eval_strategy", "steps", "--eval_steps", "1"] if form == "folder of splits" else []
    job = read_job(["--config", str(recipe(dataset_name=str(path))), *arguments, "--per_device_eval_batch_size", "8"])
    trainer, _ = build_trainer(job)
    assert trainer.train_dataset["puzzle"] == rows["puzzle"]
    assert len(trainer.eval_dataset or []) == (8 if arguments else 0)


def test_without_a_dataset_evaluation_during_training_plays_held_out_tasks(recipe: Callable[..., Path]) -> None:
    changed: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    trainer, _ = build_trainer(read_job(["--config", str(recipe(held_out_tasks=16, **changed))]))
    assert [row["seed"] >= 2**31 for row in trainer.eval_dataset] == [True] * 16


def test_a_dataset_without_the_split_or_of_an_unknown_kind_is_refused(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    rows = tasks(make("sudoku", size=4, blanks=4), "train", size=24)
    rows.save_to_disk(tmp_path / "rows")
    job = read_job(["--config", str(recipe(dataset_name=str(tmp_path / "rows"))), "--eval_strategy", "epoch"])
    with pytest.raises(ValueError, match="must have the split 'test', got 'train'"):
        build_trainer(job)
    (tmp_path / "rows.txt").write_text("")
    with pytest.raises(ValueError, match=r"must end in \.json, \.jsonl, \.csv, \.parquet"):
        build_trainer(read_job(["--config", str(recipe(dataset_name=str(tmp_path / "rows.txt")))]))
