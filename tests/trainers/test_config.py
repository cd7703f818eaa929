"""Settings are refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hf_credit.trainers.config import CreditConfig


def config(tmp_path: Path, **changed: Any) -> CreditConfig:
    return CreditConfig(
        **{"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none", **changed}
    )


def test_instances_per_update_sets_gradient_accumulation(tmp_path: Path) -> None:
    settings = config(tmp_path, instances_per_update=128, per_device_train_batch_size=4)
    assert settings.gradient_accumulation_steps == 32
    assert settings.generation_batch_size == 128
    assert settings.generation_batch_size == 128


def test_trajectories_are_shared_among_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="got 128 and 3 x 8"):
        config(tmp_path, instances_per_update=128, per_device_train_batch_size=3)


def test_an_evaluation_plays_as_many_tasks_together_as_training(tmp_path: Path) -> None:
    assert config(tmp_path, instances_per_update=64).per_device_eval_batch_size == 64
    assert config(tmp_path, per_device_train_batch_size=2).per_device_eval_batch_size == 8
    assert config(tmp_path, instances_per_update=64, per_device_eval_batch_size=2).per_device_eval_batch_size == 2
    assert config(tmp_path, instances_per_update=32, num_generations_eval=5).per_device_eval_batch_size == 35


def test_trls_arithmetic_holds_without_instances_per_update(tmp_path: Path) -> None:
    settings = config(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=3)
    assert settings.generation_batch_size == 6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"instances_per_update": 10, "per_device_train_batch_size": 4}, "must be a multiple of"),
        ({"instances_per_update": 2, "per_device_train_batch_size": 4}, "must be a multiple of"),
        (
            {"instances_per_update": 16, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
            "leave one of them out",
        ),
        ({"per_device_train_batch_size": 3}, "an even number of task rows, got 3"),
        ({"loss_type": "grpo"}, "loss_type must be one of dapo, cispo, got 'grpo'"),
        ({"loss_type": "cispo"}, "epsilon_high bounds the ratio itself, so it must be at least 1, got 0.2; "),
        ({"loss_type": "cispo", "epsilon_high": 5, "delta": 10}, "delta has no effect with loss_type='cispo', got 10"),
        ({"trust_region": 0.1, "cast_lm_head_to_fp32": True}, "cast_lm_head_to_fp32 has no effect with trust_region"),
        ({"trust_region_tool": 0.1}, "trust_region_tool has no effect without trust_region, got 0.1; "),
        ({"importance_sampling_level": "row"}, "importance_sampling_level must be one of token, sequence, got 'row'"),
        ({"aggregation": "row"}, "aggregation must be one of token, sequence, got 'row'"),
        ({"max_concurrent_episodes": 0}, "max_concurrent_episodes must be at least 1, got 0"),
        ({"max_context_tokens": 0}, "max_context_tokens must be at least 1, got 0"),
        ({"num_generations": 8}, "num_generations must be 1, got 8: a method plays a task several times itself; set"),
        ({"vllm_server_request_timeout": 0}, "vllm_server_request_timeout must be above 0, got 0"),
    ],
)
def test_invalid_settings_are_refused_in_one_sentence(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        config(tmp_path, **changed)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, "8", True], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        "instances_per_update",
        "max_concurrent_episodes",
        "max_context_tokens",
        "rows_per_forward",
        "log_episodes",
        "switch_every",
        "max_completion_length",
        "top_k",
    ],
)
def test_a_value_that_is_not_a_whole_number_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a whole number, got .*; correct it\.$"):
        config(tmp_path, **{name: value})


@pytest.mark.parametrize("name", ["learning_rate", "epsilon", "beta", "temperature", "vllm_server_request_timeout"])
def test_nan_is_no_setting(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a (finite )?number, got (nan|NaN); correct it\.$"):
        config(tmp_path, **{name: float("nan")})


@pytest.mark.parametrize("settings", [{"load_best_model_at_end": True}, {"lr_scheduler_type": "reduce_lr_on_plateau"}])
def test_the_best_model_is_that_of_a_metric_which_an_evaluation_has(tmp_path: Path, settings: dict[str, Any]) -> None:
    evaluated = {"eval_strategy": "steps", "eval_steps": 5, "save_strategy": "steps", "save_steps": 5, **settings}
    with pytest.raises(ValueError, match="which has no loss, got 'loss'; set it to reward or success"):
        config(tmp_path, **evaluated)
    config(tmp_path, metric_for_best_model="success", **evaluated)
