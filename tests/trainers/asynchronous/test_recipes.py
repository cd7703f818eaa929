"""Recipes of trainings that a server plays for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_credit import AsyncCreditConfig, CreditConfig
from hf_credit.methods import Method
from hf_credit.trainers.recipes import describe_fields, read_job


def recipe(folder: Path, **changed: Any) -> list[str]:
    values = {
        "training": "asynchronous",
        "method": "grpo",
        "task": "sudoku",
        "task_options": {"size": 4, "blanks": 4},
        "model_name_or_path": "policy",
        "output_dir": str(folder / "run"),
        "max_completion_length": 12,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        **changed,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return ["--config", str(path)]


def test_a_recipe_names_its_kind_of_training(tmp_path: Path) -> None:
    job = read_job(recipe(tmp_path, instances_per_update=16, max_staleness=2, method_options={"group_size": 3}))
    assert isinstance(job.args, AsyncCreditConfig)
    assert (job.args.generation_batch_size, job.args.max_staleness) == (16, 2)
    method = job.method()
    assert isinstance(method, Method)
    assert method.collector.size == 3  # type: ignore[attr-defined]
    other = read_job([*recipe(tmp_path), "--training", "synchronous"])
    assert isinstance(other.args, CreditConfig)


def test_a_preset_has_the_papers_settings_here_too(tmp_path: Path) -> None:
    changed = {"oracle": "sudoku_constraints", "gamma": 0.5, "method_options": {"min_active": 2}}
    job = read_job(recipe(tmp_path, method="verifiable_process", **changed))
    assert isinstance(job.args, AsyncCreditConfig)
    assert (job.args.instances_per_update, job.args.max_steps, job.args.warmup_steps) == (128, 100, 5)
    assert (job.args.gamma, job.args.min_active, job.args.temperature) == (0.5, 2, 1)  # type: ignore[attr-defined]
    method = job.method()
    assert method is not None
    assert (method.name, method.options["gamma"], method.options["min_active"]) == ("verifiable_process", 0.5, 2)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"beta": 0.04},
            r"got --beta; beta need training synchronous; leave them out, or set training to synchronous\.",
        ),
        ({"trust_region": 0.1, "share_prompts": False}, r"share_prompts, trust_region need training synchronous"),
        ({"training": "parallel"}, r"training must be one of synchronous, asynchronous, got 'parallel'; pick one\."),
        ({"role_models": {"judge": "model"}}, r"role_models need training synchronous, got \['judge'\]"),
    ],
)
def test_what_goes_with_the_other_seam_is_refused(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_job(recipe(tmp_path, **changed))


def test_the_fields_of_the_seam_are_described(tmp_path: Path) -> None:
    told = describe_fields(recipe(tmp_path))
    assert "--concurrent_collections 3\n      Number of collections that are played in parallel." in told
    assert "Of AsyncCreditConfig, where it is not as in TRL:" in told
    assert "As in TRL's AsyncGRPOConfig and ModelConfig:" in told
    assert "method_options of grpo:" in told
