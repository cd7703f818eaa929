"""What a transfer of weights to vLLM leaves as it was."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from hf_credit.trainers.transfer import FrozenBase


def adapted(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=11, num_attention_heads=2, num_key_value_heads=2, **sizes))
    made = get_peft_model(model.to(dtype), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    for name, weight in made.named_parameters():
        if "lora" in name:
            weight.data = 0.1 * weight.data.float()
    return made


def base_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items() if "lora" not in name}


def moved(before: dict[str, torch.Tensor], model: torch.nn.Module) -> float:
    return max(float((weight - before[name]).abs().max()) for name, weight in base_of(model).items())


@pytest.mark.parametrize(("dtype", "drifts"), [(torch.bfloat16, True), (torch.float32, False)])
def test_merging_adapters_to_send_them_does_not_move_the_weights_below(dtype: torch.dtype, drifts: bool) -> None:
    model = adapted(dtype)
    kept = FrozenBase(model)
    before = base_of(model)

    def transferred() -> dict[str, torch.Tensor]:
        model.merge_adapter()
        sent = base_of(model)
        model.unmerge_adapter()
        return sent

    for _ in range(3):
        with kept.restored():
            sent = transferred()
        assert any(not torch.equal(sent[name], before[name]) for name in sent)
        assert moved(before, model) <= (0 if drifts else 1e-6)
    for _ in range(3):
        transferred()
    assert (moved(before, model) > 1e-5) == drifts  # without it


def test_weights_are_given_back_after_a_transfer_that_fails() -> None:
    model = adapted(torch.bfloat16)
    before = base_of(model)
    with suppress(ConnectionError), FrozenBase(model).restored():
        model.merge_adapter()
        model.unmerge_adapter()
        raise ConnectionError
    assert moved(before, model) == 0


def test_a_model_without_adapters_is_left_alone() -> None:
    model = torch.nn.Linear(2, 2, dtype=torch.bfloat16)
    with FrozenBase(model).restored():
        model.weight.data += 1
        changed = model.weight.clone()
    assert torch.equal(model.weight, changed)
