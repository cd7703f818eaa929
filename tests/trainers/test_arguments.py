"""Errors in a trainer's arguments are raised before a model is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from hf_credit import ReplayLOOConfig, ReplayLOOTrainer, VerifiableProcessConfig, VerifiableProcessTrainer, make
from hf_credit.collaborations.base import graph
from hf_credit.collaborations.relay import relay, relay_score
from hf_credit.rollouts.dry_run import DryRunError
from hf_credit.trainers.arguments import held_out_tasks, require, require_config

SETTINGS = {"bf16": False, "use_cpu": True, "report_to": "none", "instances_per_update": 2}


def settings(kind: Any, tmp_path: Path, **changed: Any) -> Any:
    return kind(output_dir=str(tmp_path), per_device_train_batch_size=2, **{**SETTINGS, **changed})


@pytest.mark.parametrize(
    ("interaction", "message"),
    [
        (make("sudoku"), r"got an object of type Sudoku; pass EnvironmentInteraction\(the environment\)\."),
        ("sudoku", r"got the str 'sudoku'; pass EnvironmentInteraction\(hf_credit.make\('sudoku'\)\)\."),
        ("my game", r"got the str 'my game'; pass EnvironmentInteraction\(hf_credit.make\('name'\)\)\."),
        (relay, "got an object of type function; pass a Collaboration, an EnvironmentInteraction or another"),
    ],
)
def test_an_invalid_interaction_is_refused_in_one_sentence(interaction: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"interaction must be an Interaction, {message}"):
        ReplayLOOTrainer("no model", interaction, settings(ReplayLOOConfig, tmp_path), relay(4).tasks("train", 2))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("sudoku", r"got the str 'sudoku'; pass EnvironmentInteraction\(hf_credit.make\('sudoku'\)\)\."),
        (None, "got an object of type NoneType; pass a Collaboration, an EnvironmentInteraction or another"),
    ],
)
def test_an_invalid_environment_is_refused_in_one_sentence(environment: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"interaction must be an Interaction, {message}"):
        VerifiableProcessTrainer("no model", environment, settings(VerifiableProcessConfig, tmp_path))


def test_settings_of_another_class_are_refused_in_one_sentence(tmp_path: Path) -> None:
    plain = GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    with pytest.raises(TypeError, match="args must be of class VerifiableProcessConfig, got GRPOConfig; make one"):
        VerifiableProcessTrainer("no model", make("sudoku"), plain)
    with pytest.raises(TypeError, match="args must be of class ReplayLOOConfig, got GRPOConfig; make one"):
        ReplayLOOTrainer("no model", relay(size=4), plain, relay(4).tasks("train", 2))


def test_valid_arguments_pass() -> None:
    require(relay(size=4), 1, int)
    require_config(True, int)


# The dry run. A folder with the tokenizer alone shows that no model was looked for.


@pytest.fixture
def tokenizer_alone(micro_policy: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    shutil.copytree(micro_policy, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def test_a_scorer_with_a_typo_is_refused_before_a_model_is_loaded(tokenizer_alone: Path, tmp_path: Path) -> None:
    def score(task: Any, text: str) -> float:
        return float(task["anwser"] == text)

    interaction = relay(size=4)
    interaction.scorer = score
    with pytest.raises(DryRunError, match=r"first task row of the training dataset .* got KeyError: 'anwser'"):
        ReplayLOOTrainer(
            str(tokenizer_alone), interaction, settings(ReplayLOOConfig, tmp_path), relay(4).tasks("train", 2)
        )


@pytest.mark.parametrize("several", [False, True])
def test_evaluation_rows_are_checked_too(tokenizer_alone: Path, tmp_path: Path, several: bool) -> None:
    wrong: Any = relay(4).tasks("train", 2).remove_columns("problem")
    with pytest.raises(DryRunError, match=r"first task row of the evaluation dataset .* in the column 'problem'"):
        ReplayLOOTrainer(
            str(tokenizer_alone),
            relay(size=4),
            settings(ReplayLOOConfig, tmp_path),
            relay(4).tasks("train", 2),
            eval_dataset={"hard": wrong} if several else wrong,
        )


def test_a_template_that_refuses_system_is_refused(tokenizer_alone: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_alone)
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        + tokenizer.chat_template
    )
    with pytest.raises(DryRunError, match="System role not supported"):
        ReplayLOOTrainer(
            str(tokenizer_alone),
            relay(size=4),
            settings(ReplayLOOConfig, tmp_path),
            relay(4).tasks("train", 2),
            processing_class=tokenizer,
        )


def test_the_dry_run_is_not_counted(one_update: Callable[..., Any], micro_policy: Path) -> None:
    started: list[int] = []
    rows = Dataset.from_list([{"seed": seed} for seed in range(8)])

    def watch(trainer: Any) -> None:
        started.append(trainer.ledger.scoring_events)

    trainer = one_update(micro_policy, trainer_kwargs={"train_dataset": rows}, on_built=watch)
    assert started == [0]
    assert trainer.state.log_history[0]["budget/scoring_events"] == 8


def test_a_loaded_model_is_its_own_reference(micro_policy: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    model.config._name_or_path = ""
    model.lm_head.weight.data += 1.0  # what no folder holds
    args = settings(VerifiableProcessConfig, tmp_path, beta=0.1, gradient_checkpointing=False)
    environment = make("sudoku", size=4, blanks=4)
    with pytest.raises(ValueError, match="a model made in memory needs a tokenizer, got none; pass process"):
        VerifiableProcessTrainer(model, environment, args)
    tokenizer = AutoTokenizer.from_pretrained(micro_policy, padding_side="left")
    trainer = VerifiableProcessTrainer(model, environment, args, processing_class=tokenizer)
    assert trainer.ref_model is not model
    assert torch.equal(trainer.ref_model.lm_head.weight, model.lm_head.weight)
    assert model.config._name_or_path == ""


def test_evaluation_without_rows_plays_held_out_tasks(micro_policy: Path, tmp_path: Path) -> None:
    args = settings(VerifiableProcessConfig, tmp_path, eval_strategy="steps", eval_steps=1)
    trainer = VerifiableProcessTrainer(str(micro_policy), make("sudoku", size=4, blanks=4), args)
    own = trainer.interaction.tasks("held_out", 256)
    assert [trainer.eval_dataset[place] for place in (0, 255)] == [own[place] for place in (0, 255)]
    assert len(trainer.eval_dataset) == 256


def test_an_evaluation_without_rows_is_refused_for_a_task_without_its_own(tmp_path: Path) -> None:
    collaboration = graph(roles={"a": "Say."}, events=[{"name": "a", "role": "a"}], final="a", scorer=relay_score)
    args = settings(ReplayLOOConfig, tmp_path, eval_strategy="steps", eval_steps=1)
    with pytest.raises(ValueError, match=r"needs task rows, got eval_strategy='steps' for .* pass eval_dataset="):
        held_out_tasks(collaboration, args)
