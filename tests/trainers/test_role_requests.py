"""Adapters and settings with which vLLM cannot generate for each role are refused. With vLLM itself: tests/vllm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from peft import LoHaConfig, LoraConfig, PeftModel
from transformers import AutoModelForCausalLM

from hf_credit import ReplayLOOConfig
from hf_credit.trainers.role_requests import adapter_rank, adapter_weights, refuse_requests, refuse_server

SERVER = {"lora_config": {"max_loras": 2, "max_lora_rank": 16}, "parallel_config": {"data_parallel_size": 1}}


@pytest.fixture
def args(tmp_path: Path) -> Any:
    return ReplayLOOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none", use_vllm=True)


def test_plain_adapters_are_accepted(args: Any) -> None:
    refuse_requests(args, [LoraConfig(r=512, target_modules="all-linear"), LoraConfig(use_rslora=True)])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LoHaConfig(), "must be LoRA adapters, got a LoHaConfig"),
        (
            LoraConfig(use_dora=True),
            "must be plain LoRA, the only kind that vLLM supports, got use_dora=True",
        ),
        (LoraConfig(bias="lora_only"), "got bias='lora_only'"),
        (LoraConfig(modules_to_save=["norm"]), r"got modules_to_save=\['norm'\]"),
        (LoraConfig(rank_pattern={"q_proj": 4}), "got rank_pattern="),
        (LoraConfig(alpha_pattern={"q_proj": 4}), "got alpha_pattern="),
        (LoraConfig(target_modules=["q_proj", "lm_head"]), "got target_modules with lm_head"),
        (LoraConfig(r=513), "must have a rank of at most 512, got 513"),
    ],
)
def test_adapters_that_vllm_interprets_differently_are_refused(args: Any, config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refuse_requests(args, [LoraConfig(), config])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("vllm_enable_sleep_mode", True, "vllm_enable_sleep_mode must be False, got True"),
        ("vllm_tensor_parallel_size", 2, "vllm_tensor_parallel_size must be 1, got 2"),
    ],
)
def test_engines_that_drop_adapters_are_refused_only_in_the_training_process(
    args: Any, name: str, value: Any, message: str
) -> None:
    args.vllm_mode = "colocate"
    refuse_requests(args, [LoraConfig()])
    setattr(args, name, value)
    with pytest.raises(ValueError, match=message):
        refuse_requests(args, [LoraConfig()])
    args.vllm_mode = "server"
    refuse_requests(args, [LoraConfig()])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lora_config": None}, "must take 2 adapters of rank 12 for these role_adapters, got none at http://there"),
        (
            {"lora_config": {"max_loras": 1, "max_lora_rank": 16}},
            "got 1 of rank 16 at .* start it with --enable-lora ",
        ),
        ({"lora_config": {"max_loras": 2, "max_lora_rank": 8}}, "--max-loras 2 --max-lora-rank 16"),
        ({"parallel_config": {"data_parallel_size": 2}}, "must have one replica, got 2 at http://there"),
    ],
)
def test_a_server_that_cannot_hold_the_adapters_is_refused(changed: dict[str, Any], message: str) -> None:
    refuse_server(SERVER, "http://there", 2, 12)
    with pytest.raises(ValueError, match=message):
        refuse_server({**SERVER, **changed}, "http://there", 2, 12)


def test_the_weights_of_a_role_are_copies_with_names_without_the_role(micro_policy: Path) -> None:
    config = LoraConfig(r=2, target_modules=["q_proj"])
    model = PeftModel(AutoModelForCausalLM.from_pretrained(micro_policy), config, "reasoner")
    model.add_adapter("actor", LoraConfig(r=4, target_modules=["q_proj"]))
    assert adapter_rank(model.peft_config) == 4
    found = adapter_weights(model, "actor")
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A"
    assert found[f"{name}.weight"].shape[0] == 4
    own = model.state_dict()[f"{name}.actor.weight"]
    assert (found[f"{name}.weight"] == own).all()
    own.zero_()
    assert found[f"{name}.weight"].any()
