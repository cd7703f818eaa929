from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_credit.evaluation.runs import write_config
from hf_credit.recipes import RECIPES
from hf_credit.trainers.recipes import PRESETS, read_job

PATHS = list(RECIPES.values())
# Tests have no GPU, which half precision needs unless use_cpu is set.
ON_CPU = ("--use_cpu", "true")


def problem(path: Path, *arguments: str) -> str:
    with pytest.raises((ValueError, OSError)) as error:
        read_job(["--config", str(path), *arguments])
    return str(error.value)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recipe_is_complete_and_its_game_can_be_made(path: Path) -> None:
    job = read_job(["--config", str(path), *ON_CPU])
    assert job.task.method == {"relay_micro_magrpo": "magrpo", "relay_micro_mappo": "mappo"}.get(
        path.stem, path.parent.name
    )
    assert job.args.instances_per_update
    assert job.spec().task == job.task.task
    assert job.args.output_dir == f"runs/{path.stem}"
    assert job.model.model_name_or_path


def test_an_oracle_is_a_name_or_a_mapping_in_a_recipe_and_on_the_command_line(tmp_path: Path) -> None:
    values = yaml.safe_load(RECIPES["tic_tac_toe_micro"].read_text())
    described = {"name": "mcts", "options": {"simulations": 3}}
    ways: list[tuple[dict[str, Any], list[str]]] = [
        ({"oracle": "mcts", "oracle_options": {"simulations": 3}}, []),
        ({"oracle": described}, []),
        ({}, ["--oracle", json.dumps(described)]),
        ({}, ["--oracle", '{"name": "mcts"}', "--oracle_options", '{"simulations": 3}']),
    ]
    for changed, words in ways:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({**values, **changed}))
        assert read_job(["--config", str(path), *ON_CPU, *words]).task.described_oracle() == described


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_settings_that_a_run_writes_are_a_recipe_for_the_same_run(path: Path, tmp_path: Path) -> None:
    job = read_job(["--config", str(path), *ON_CPU, "--chat_template_kwargs", '{"enable_thinking": false}'])
    write_config(tmp_path / "config.yaml", job.config())
    again = read_job(["--config", str(tmp_path / "config.yaml")])
    assert again.config() == job.config()
    assert again.args.generation_batch_size == job.args.generation_batch_size


def test_every_preset_has_recipes() -> None:
    assert {path.parent.name for path in PATHS} == set(PRESETS)


def test_the_papers_settings_are_in_the_papers_recipe() -> None:
    (path,) = (path for path in PATHS if path.stem == "qwen3_4b_sudoku")
    job = read_job(["--config", str(path), *ON_CPU])
    args = job.args
    assert job.model.model_name_or_path == "Qwen/Qwen3-4B"
    assert job.task.task_options == {"size": 9, "blanks": 40}
    assert (args.max_steps, args.lr_scheduler_type, args.warmup_steps) == (100, "cosine", 5)
    assert (args.temperature, args.top_p, args.top_k) == (0.6, 0.95, 20)
    assert (args.gamma, args.beta) == (0.0, 0.0)


def test_the_papers_settings_of_c3_are_in_its_recipes() -> None:
    for stem, model in (
        ("qwen3_4b_math", "Qwen/Qwen3-4B-Instruct-2507"),
        ("qwen3_4b_math_lora", "Qwen/Qwen3-4B-Instruct-2507"),
        ("qwen2_5_coder_3b_code", "Qwen/Qwen2.5-Coder-3B-Instruct"),
    ):
        (path,) = (path for path in PATHS if path.stem == stem)
        job = read_job(["--config", str(path), *ON_CPU])
        args = job.args
        assert job.model.model_name_or_path == model
        assert (args.budget, args.alternatives, args.baseline) == (8, [2, 4], "leave_one_out")
        assert (args.num_train_epochs, args.shuffle_dataset, args.max_steps) == (5, False, -1)
        assert (args.epsilon, args.adam_beta1, args.adam_beta2, args.weight_decay) == (0.2, 0.9, 0.95, 0.0)
        assert (args.max_grad_norm, args.lr_scheduler_type, args.warmup_steps) == (1.0, "cosine", 0.03)
        assert (args.temperature, args.top_p, args.top_k) == (0.7, 0.8, 20)
        assert (args.max_context_tokens, args.max_completion_length) == (2560, 512)
        assert job.model.use_peft == stem.endswith("_lora")


def test_the_baselines_of_relay_differ_only_in_the_method() -> None:
    micro = {path.stem: read_job(["--config", str(path)]).config() for path in PATHS if path.stem.startswith("relay")}
    assert {name: config["method"] for name, config in micro.items()} == {
        "relay_micro": "replay_loo",
        "relay_micro_magrpo": "magrpo",
        "relay_micro_mappo": "mappo",
    }
    for config in micro.values():
        different = {name for name, value in config.items() if micro["relay_micro"].get(name, value) != value}
        epochs = {"num_train_epochs"}  # max_steps determines the length
        assert different <= {"method", "method_options", "output_dir", "critic_learning_rate", "logging_dir"} | epochs


# Overriding


def test_flags_override_the_recipe(recipe: Callable[..., Path]) -> None:
    job = read_job(
        [
            "--config",
            str(recipe()),
            "--max_steps=7",
            "--learning_rate",
            "5e-4",
            "--gamma",
            "0.5",
            "--task_options",
            '{"size": 6}',
            "--use_peft",
            "--lora_r",
            "4",
        ]
    )
    assert (job.args.max_steps, job.args.learning_rate, job.args.gamma) == (7, 5e-4, 0.5)
    assert job.task.task_options == {"size": 6}
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
        (("--hub_tokem", "secret"), "got --hub_tokem; did you mean 'hub_token'?"),
        (("--hub_tokem=secret",), "got --hub_tokem; did you mean 'hub_token'?"),
        (("--nonsense", "1"), "of TRL's ModelConfig and of TaskArguments, got --nonsense; "),
        (("--method", "magic"), "or 'module:object', got 'magic'; pick one"),
        (("--method",), "argument --method: expected one argument"),
        (("--method", "t3"), "did you mean 'truncated_ppo'?"),
        (("--method", "truncatd_ppo"), "did you mean 'truncated_ppo'?"),
        (("--method", "truncated_ppo", "--training", "asynchronous"), "'truncated_ppo' needs training synchronous"),
        (("--task_options", "size"), "task_options must be a mapping, got 'size'"),
        (("--oracle_options", '{"seed": 1}'), "oracle_options need an oracle"),
        (("--gamma", "2"), "gamma must be in [0, 1], got 2.0"),
        (("--method_options", '{"gamma": 2}'), "gamma must be in [0, 1], got 2"),
        (("--method_options", '{"gama": 1}'), "options of 'verifiable_process', got 'gama'; did you mean 'gamma'?"),
        (("--history", "all"), "history must be one of append, rendered, current, got 'all'"),
        (("--per_device_train_batch_size", "3"), "must be a multiple of per_device_train_batch_size"),
        (("--dtype", "float7"), "invalid choice: 'float7'"),
    ],
)
def test_a_wrong_field_is_refused(recipe: Callable[..., Path], arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in problem(recipe(), *arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--task", ""), "a task must be named, got none; set task"),
        (("--oracle", "mcts"), "the method replay_loo uses no oracle, got 'mcts'; leave it out"),
        (("--alternatives", "3", "4"), "budget must equal the product of alternatives"),
    ],
)
def test_a_method_and_a_task_that_do_not_fit_are_refused(
    together: Callable[..., Path], arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in problem(together(), *arguments)


def test_what_a_recipe_has_for_another_method_is_told_and_left_out(
    recipe: Callable[..., Path], together: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def said(path: Path, *arguments: str) -> str:
        job = read_job(["--config", str(path), *arguments])
        method = job.method()
        assert method is not None
        assert method.name == arguments[-1]
        return capsys.readouterr().err

    verified = recipe(oracle="sudoku_constraints", gamma=0.9)
    assert said(verified, "--method", "grpo") == ("The method grpo does not use what the recipe has: gamma, oracle.\n")
    assert said(recipe(method="outcome_reward", oracle="sudoku_constraints"), "--method", "outcome_reward") == ""
    options = recipe(method="grpo", method_options={"group_size": 4, "scale": "batch"})
    assert said(options, "--method", "magrpo") == ("The method magrpo does not use what the recipe has: scale.\n")
    assert read_job(["--config", str(options), "--method", "magrpo"]).task.method_options == {"group_size": 4}
    assert said(together(num_replays=2, alternatives=[3]), "--method", "grpo").endswith("alternatives, num_replays.\n")
    assert "uses no oracle, got 'mcts'" in problem(verified, "--method", "grpo", "--oracle", "mcts")


def test_a_wrong_recipe_is_refused(recipe: Callable[..., Path], tmp_path: Path) -> None:
    assert "got --spped; did you mean" in problem(recipe(spped=1))
    assert "model_name_or_path must name a model" in problem(recipe(model_name_or_path=None))
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    assert "must be a YAML mapping" in problem(tmp_path / "list.yaml")
    (tmp_path / "method.yaml").write_text("method: {name: grpo}\n", encoding="utf-8")
    assert "a recipe's method must be a name, got {'name': 'grpo'}" in problem(tmp_path / "method.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    assert "must be YAML" in problem(tmp_path / "broken.yaml")
    assert "name a file, or a recipe that" in problem(tmp_path / "nowhere.yaml")


def test_the_method_may_be_a_flag(recipe: Callable[..., Path]) -> None:
    values = yaml.safe_load(recipe().read_text())
    del values["method"]
    recipe().write_text(yaml.safe_dump(values))
    path = recipe().with_name("without.yaml")
    path.write_text(yaml.safe_dump(values))
    assert read_job(["--config", str(path)]).task.method == "verifiable_process"


def test_save_steps_need_a_save_strategy(recipe: Callable[..., Path]) -> None:
    path = str(recipe())
    with pytest.raises(ValueError, match="save_steps needs save_strategy 'steps', got 'no'"):
        read_job(["--config", path, "--save_steps", "10"])
    with pytest.raises(ValueError, match="save_steps needs save_strategy 'steps', got 'no'"):
        read_job(["--config", path, "--save-steps=10"])
    read_job(["--config", path, "--save_steps", "10", "--save_strategy", "steps"])
