"""Several processes give the gradient and the metrics of one."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from launched import launch
from safetensors.torch import load_file
from small_runs import SHARDED

from hf_credit import make
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.tasks.rows import starts_of
from hf_credit.trainers.micro import init_scripted_policy

ON_CPU = {"ACCELERATE_USE_CPU": "true"}
# What `accelerate launch` makes of deepspeed_zero3.yaml. Told to stay on CPUs, accelerate would leave DeepSpeed out.
ZERO3 = {
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true",
    "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "none",
    "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "none",
    "DS_ACCELERATOR": "cpu",
}


def update_of_two(
    script: Path, policy: Path, output: Path, environment: dict[str, str], **changed: Any
) -> dict[str, Any]:
    """The results of two processes after one update, with two rows in each forward and backward pass."""
    output.mkdir()
    settings = {"per_device_train_batch_size": 2, **changed}
    launch(script, policy, output, json.dumps(settings), processes=2, folder=output, environment=environment)
    two = torch.load(output / "update.pt")
    assert two["processes"] == 2
    return two


def assert_same_metrics(two: dict[str, float], one: dict[str, float]) -> None:
    timed = {name for name in one if "time" in name or "seconds" in name or "per_second" in name}
    compared = one.keys() - timed
    assert {"entropy", "clip_ratio/region_mean"} <= compared
    assert {"reward", "success", "completion", "oracle/valid", "tokens/generated", "loss", "grad_norm"} <= compared
    for name in compared:
        assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize(
    ("environment", "share"), [(ON_CPU, 1.0), ({**ON_CPU, **SHARDED}, 0.5)], ids=["replicated", "sharded by FSDP2"]
)
def test_two_processes_give_the_gradient_and_the_metrics_of_one(
    one_update: Callable[..., Any],
    one_update_script: Path,
    micro_policy: Path,
    tmp_path: Path,
    environment: dict[str, str],
    share: float,
) -> None:
    two = update_of_two(one_update_script, micro_policy, tmp_path / "two", environment, evaluated=3)
    one = one_update(micro_policy)
    parameters = sum(parameter.numel() for parameter in one.model.parameters())
    assert two["held"] == pytest.approx(share * parameters, rel=0.05)
    assert two["together"] == (share < 1)  # nobody waits for another's replies where everybody has all weights
    gradient = one.kept[0]
    assert two["gradient"].keys() == gradient.keys()
    assert max(value.abs().max() for value in gradient.values()) > 1e-4
    for name, value in gradient.items():
        torch.testing.assert_close(two["gradient"][name], value, rtol=1e-3, atol=1e-6)
    assert_same_metrics(two["metrics"], one.state.log_history[0])
    evaluation = one.evaluate(one.train_dataset.select(range(3)))  # fewer rows than two batches have places
    for name in ("eval_reward", "eval_completion", "eval_tokens/generated", "eval_replies/length"):
        assert two["evaluation"][name] == pytest.approx(evaluation[name], rel=1e-3, abs=1e-6), name


def test_rows_with_images_move_between_processes_and_give_the_gradient_of_one(
    one_update: Callable[..., Any], one_update_script: Path, tmp_path: Path
) -> None:
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=3, notation="picture"), instructions=False)
    starts, policy = starts_of(interaction.tasks("train", 32), "train"), tmp_path / "policy"
    config = MicroConfig(layers=1, episodes=32, epochs=1, batch_rows=8)
    init_scripted_policy(interaction, interaction.scripted_player(0.8), starts, policy, config, callbacks=[])
    uneven = {"uneven": True, "history": "append", "pictured": True}
    two = update_of_two(one_update_script, policy, tmp_path / "two", ON_CPU, **uneven)
    one = one_update(policy, **uneven)
    assert two["moved"] > 0
    gradient = one.kept[0]
    assert two["gradient"].keys() == gradient.keys()
    assert any("vision_tower" in name and value.abs().max() > 1e-4 for name, value in gradient.items())
    for name, value in gradient.items():
        torch.testing.assert_close(two["gradient"][name], value, rtol=1e-3, atol=1e-6)
    assert_same_metrics(two["metrics"], one.state.log_history[0])


def test_rows_balanced_by_length_give_the_gradient_of_one_process(
    one_update: Callable[..., Any], one_update_script: Path, micro_policy_append: Path, tmp_path: Path
) -> None:
    uneven = {"uneven": True, "history": "append", "top_k": 1}
    two = update_of_two(one_update_script, micro_policy_append, tmp_path / "two", ON_CPU, **uneven)
    one = one_update(micro_policy_append, **uneven)
    assert two["moved"] > 0
    assert max(value.abs().max() for value in one.kept[0].values()) > 1e-4
    for name, value in one.kept[0].items():
        torch.testing.assert_close(two["gradient"][name], value, rtol=1e-3, atol=1e-6)
    assert_same_metrics(two["metrics"], one.state.log_history[0])


def test_two_processes_agree_whether_an_update_has_a_signal(
    one_update: Callable[..., Any], one_update_script: Path, micro_policy: Path, tmp_path: Path
) -> None:
    quiet = {"silenced": [[0], [0, 1]], "max_steps": 2, "warmup_steps": 0}
    two = update_of_two(one_update_script, micro_policy, tmp_path / "two", ON_CPU, **quiet)
    first, second = two["skipped"]
    assert 0 < first < 1 == second
    assert max(value.abs().max() for value in two["gradient"].values()) > 1e-4
    assert two["last gradient"].keys() == two["gradient"].keys()
    assert not any(value.any() for value in two["last gradient"].values())


def test_two_processes_end_together_once_their_tokens_are_sampled(
    one_update_script: Path, micro_policy: Path, tmp_path: Path
) -> None:
    ending = {"max_sampled_tokens": 1, "max_steps": 3}
    assert len(update_of_two(one_update_script, micro_policy, tmp_path / "two", ON_CPU, **ending)["skipped"]) == 1


def test_two_processes_weight_the_ratios_of_episodes_like_one(
    one_update: Callable[..., Any], one_update_script: Path, micro_policy_append: Path, tmp_path: Path
) -> None:
    of_sequences = {"history": "append", "importance_sampling_level": "sequence", "aggregation": "sequence"}
    two = update_of_two(one_update_script, micro_policy_append, tmp_path / "two", ON_CPU, **of_sequences)
    one = one_update(micro_policy_append, **of_sequences)
    gradient = one.kept[0]
    assert max(value.abs().max() for value in gradient.values()) > 1e-4
    for name, value in gradient.items():
        torch.testing.assert_close(two["gradient"][name], value, rtol=1e-3, atol=1e-6)
    assert two["metrics"]["loss"] == pytest.approx(one.state.log_history[0]["loss"], rel=1e-3, abs=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="ZeRO-3 needs deepspeed, not installed here")
def test_two_processes_of_deepspeed_zero3_give_the_update_and_the_metrics_of_one(
    one_update: Callable[..., Any], one_update_script: Path, micro_policy: Path, tmp_path: Path
) -> None:
    # With plain descent at a rate of 1, what an update takes from the weights is the gradient.
    descent = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "warmup_steps": 0}
    zero3 = {"use_cpu": False, "ddp_backend": "gloo", **descent}
    two = update_of_two(one_update_script, micro_policy, tmp_path / "two", ZERO3, **zero3)
    one = one_update(micro_policy, **descent)
    parameters = sum(parameter.numel() for parameter in one.model.parameters())
    assert two["held"] == pytest.approx(0.5 * parameters, rel=0.05)
    one.save_model(str(tmp_path / "one"))
    before, after, expected = (
        load_file(folder / "model.safetensors")
        for folder in (micro_policy, tmp_path / "two" / "policy", tmp_path / "one")
    )
    assert after.keys() == expected.keys()
    assert max((value - before[name]).abs().max() for name, value in expected.items()) > 1e-2
    for name, value in expected.items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=1e-6)
    assert_same_metrics(two["metrics"], one.state.log_history[0])


@pytest.mark.parametrize("name", ["multi_gpu", "fsdp2", "deepspeed_zero3", "multi_node"])
def test_accelerate_reads_every_config_of_the_repository(root: Path, name: str) -> None:
    config = load_config_from_file(str(root / "trainers" / "accelerate" / f"{name}.yaml"))
    assert config.num_processes == 8 * config.num_machines
    assert config.mixed_precision == "bf16"
