from __future__ import annotations

import importlib.util
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import launch
from transformers import AutoModelForCausalLM

from hf_credit.evaluation.results import EvalResults
from hf_credit.evaluation.runs import read_log, read_run
from hf_credit.tasks.spec import Sampling, TaskSpec
from hf_credit.trainers.recipes import read_job


def test_a_run_saves_the_policy_and_its_settings(trained_run: Path, micro_policy: Path) -> None:
    run = read_run(trained_run)
    assert (run.updates, run.last("budget/scoring_events"), run.facts["processes"]) == (2, 16, 1)
    assert run.facts["parameters"] == run.facts["trained_parameters"] > 0
    for name in ("reward", "success", "completion", "oracle/valid", "tokens/generated"):
        assert len(run.curve(name)[0]) == 2
    assert run.config["gamma"] == 0.0
    assert read_job(["--config", str(trained_run / "config.yaml")]).args.max_steps == 2
    before, after = (
        AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (micro_policy, trained_run)
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert TaskSpec.load(trained_run) == TaskSpec.load(trained_run / "checkpoint-1")


def test_a_run_resumes_from_its_checkpoint(command: Callable[..., Any], trained_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    arguments = ("--output_dir", run, "--resume_from_checkpoint", run / "checkpoint-1", "--save_strategy", "no")
    code, _, err = command("train", trained_run.parent / "recipe.yaml", *arguments)
    assert code == 0, err
    assert "updates: 2/2" in err
    steps = [entry["step"] for entry in read_log(run / "metrics.jsonl") if "reward" in entry]
    assert steps == [1, 2]  # the second was forgotten, and made again
    assert read_run(run).last("budget/scoring_events") == 16


def test_a_full_disk_is_an_error_of_one_line(
    command: Callable[..., Any], recipe: Callable[..., Path], micro_policy: Path
) -> None:
    path, before = recipe(max_steps=1), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((micro_policy / "model.safetensors").stat().st_size - 1, before[1]))
    try:
        code, _, err = command("train", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 1
    (complaint,) = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert complaint.startswith("Error: a checkpoint must be written to its end, got ")
    assert f"in {path.parent / 'run'} with" in complaint


def test_a_run_of_an_adapter_with_checkpoints_is_evaluated_at_its_end_and_at_each(
    command: Callable[..., Any], recipe: Callable[..., Path]
) -> None:
    path = recipe(max_steps=2, save_strategy="steps", save_steps=1)
    code, _, err = command("train", path, "--use_peft", "--lora_r", 4)
    assert code == 0, err
    run = path.parent / "run"
    facts = read_run(run).facts
    assert 0 < facts["trained_parameters"] < facts["parameters"]
    for folder in (run, run / "checkpoint-1"):
        code, _, err = command("evaluate", folder, "--episodes", 2, "--output", run / "new" / "evaluation.json")
        assert code == 0, err
        assert len(EvalResults.load(run / "new" / "evaluation.json").records) == 2
    for name in ("adapter_config.json", "adapter_model.safetensors", "hf_credit_task.json"):
        (run / name).unlink()  # as a run that was stopped before its end leaves it
    for task in ((), ("--task", "sudoku")):
        code, _, err = command("evaluate", run, "--episodes", 2, *task)
        assert code == 1
        assert f"which was stopped before its end; name its newest checkpoint, {run / 'checkpoint-2'}" in err


def test_a_misspelt_flag_gets_a_suggestion(command: Callable[..., Any], recipe: Callable[..., Path]) -> None:
    code, _, err = command("train", recipe(), "--max_step", 3)
    assert code == 1
    assert "got --max_step; did you mean 'max_steps'?" in err


def test_a_missing_tracker_is_an_error_before_loading(
    command: Callable[..., Any], recipe: Callable[..., Path]
) -> None:
    code, _, err = command("train", recipe(model_name_or_path="nowhere"), "--report_to", "neptune")
    assert code == 1
    assert err.endswith("got neptune; run pip install neptune, or set report_to to none.\n")
    assert err.count("\n") == 1


def test_a_run_that_cannot_learn_warns_once(
    command: Callable[..., Any], recipe: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    code, _, err = command("train", recipe(max_completion_length=1, log_completions=False))
    assert code == 0, err
    (complaint,) = [message for message in caplog.messages if message.startswith("nothing was learned")]
    assert complaint.endswith("100% of replies reached the length limit; raise max_completion_length.")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_missing_vllm_is_an_error_with_the_extra_to_install(
    command: Callable[..., Any], recipe: Callable[..., Path]
) -> None:
    code, _, err = command("train", recipe(use_vllm=True))
    assert code == 1
    assert "Error: use_vllm needs vLLM, got none installed; run pip install 'vllm<0.32,>=0.22'" in err


def test_the_last_line_names_the_output_and_the_next_commands(
    command: Callable[..., Any], recipe: Callable[..., Path]
) -> None:
    path = recipe(max_steps=1, eval_strategy="steps", eval_steps=1, held_out_tasks=8, per_device_eval_batch_size=8)
    code, out, err = command("train", path)
    run = path.parent / "run"
    wrote = f"Wrote {run}; episodes.jsonl has the credit of replies. Try: "
    assert (code, out) == (0, f"{wrote}hf-credit evaluate {run}; hf-credit report {run}\n")
    assert "update 1, evaluated: eval_reward 0." in err
    assert "FutureWarning" not in err


def test_the_recipe_comes_first(command: Callable[..., Any]) -> None:
    code, _, err = command("train", "--max_steps", 3, "recipe.yaml")
    assert code == 1
    assert "the first argument must be a recipe, got '--max_steps'" in err


def test_the_launch_script_trains_on_two_processes_and_one_of_them_writes(
    root: Path, recipe: Callable[..., Path], tmp_path: Path
) -> None:
    script = root / "trainers" / "verifiable_process" / "train.py"
    path = recipe(per_device_train_batch_size=4, max_steps=2)
    launch(script, path, processes=2, folder=tmp_path, environment={"ACCELERATE_USE_CPU": "true"})
    run = read_run(path.parent / "run")
    assert (run.facts["processes"], run.facts["instances_per_update"], run.updates) == (2, 8, 2)
    assert len((path.parent / "run" / "metrics.jsonl").read_text().splitlines()) == 3  # two updates and the summary


def test_a_relay_is_trained_and_evaluated_as_launchers_write_it(
    command: Callable[..., Any], together: Callable[..., Path]
) -> None:
    path = together()
    code, _, err = command("train", "--config", path, "--max_steps", 1)
    assert code == 0, err
    folder = path.parent / "run"
    run = read_run(folder)
    assert (run.updates, run.facts["instances_per_update"], run.last("budget/scoring_events")) == (1, 4, 32)
    spec = TaskSpec.load(folder)
    assert spec is not None
    assert (spec.method or {})["name"] == "replay_loo"
    assert replace(spec, method=None) == TaskSpec.of_name(
        "relay", {"size": 4, "speakers": 2}, sampling=Sampling(max_new_tokens=12, temperature=1.0, top_p=1.0, top_k=0)
    )
    code, _, err = command("evaluate", folder, "--episodes", 8, "--output", folder / "evaluation.json")
    assert code == 0, err
    assert "episodes: 8/8" in err
    assert [record.turns for record in EvalResults.load(folder / "evaluation.json").records] == [2] * 8


def test_a_wrong_recipe_fails_in_one_line(command: Callable[..., Any], recipe: Callable[..., Path]) -> None:
    code, _, err = command("train", recipe(task="chess"))
    assert code == 1
    assert err.startswith("Error: task must be one of agent, circuit_decoding, ")
    assert err.endswith(", or 'module:object', got 'chess'; pick one of these.\n")
