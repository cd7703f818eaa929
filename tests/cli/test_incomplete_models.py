"""Files with missing or other tensors are errors: no part of a policy is initialised at random."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from hf_credit.critics.backbone import own_backbone
from hf_credit.loading import load_adapter, load_policy, require_whole_files
from hf_credit.policies.saved import load_sampler
from hf_credit.tasks import Sampling

Tensors = dict[str, torch.Tensor]


def without_a_layer(tensors: Tensors) -> Tensors:
    return {name: value for name, value in tensors.items() if "layers.1" not in name}


def without_any(tensors: Tensors) -> Tensors:
    return {}


def with_another(tensors: Tensors) -> Tensors:
    return {**tensors, "extra.weight": torch.zeros(2)}


def of_another_shape(tensors: Tensors) -> Tensors:
    name = min(tensors)
    return {**tensors, name: torch.zeros(3, 5)}


CHANGES = pytest.mark.parametrize(
    ("change", "named"),
    [
        (without_a_layer, r"without model\.layers\.1\.input_layernorm\.weight and \d+ more; download"),
        (without_any, r"without lm_head\.weight and \d+ more"),
        (with_another, r"with extra\.weight, which it does not have; download"),
        (of_another_shape, r"with model\.embed_tokens\.weight of shape \(3, 5\) for \(\d+, 32\)"),
    ],
)


def changed(source: Path, target: Path, change: Callable[[Tensors], Tensors], name: str = "model.safetensors") -> Path:
    shutil.copytree(source, target)
    save_file(change(load_file(target / name)), target / name, {"format": "pt"})
    return target


@CHANGES
def test_a_policy_is_played_and_trained_only_from_complete_files(
    change: Any, named: str, micro_policy: Path, tmp_path: Path
) -> None:
    folder = changed(micro_policy, tmp_path / "policy", change)
    for load in (load_policy, require_whole_files):
        with pytest.raises(ValueError, match=named):
            load(str(folder))
    require_whole_files(str(micro_policy))


@pytest.mark.parametrize("what", ["evaluate", "diagnose", "train"])
def test_a_command_ends_in_one_sentence(
    what: str, micro_policy: Path, tmp_path: Path, recipe: Callable[..., Path], command: Callable[..., Any]
) -> None:
    folder = changed(micro_policy, tmp_path / "policy", without_a_layer)
    words = [what, folder, "--episodes", 2, "--task", "sudoku", "--option", "size=4", "--max-new-tokens", 12]
    if what == "train":
        words = [what, recipe(model_name_or_path=str(folder))]
    code, out, err = command(*words)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("Error: ")
    assert "without model.layers.1.input_layernorm.weight" in err


def adapter_of(micro_policy: Path, folder: Path) -> Path:
    base = AutoModelForCausalLM.from_pretrained(micro_policy)
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (micro_policy / name).exists():
            shutil.copy(micro_policy / name, folder)
    return folder


LACKS = r"without \S*layers\.1\S*lora_A\S* and 1 more"


def test_an_adapter_has_every_tensor(micro_policy: Path, tmp_path: Path) -> None:
    whole = adapter_of(micro_policy, tmp_path / "whole")
    load_policy(str(whole))
    lacks = changed(whole, tmp_path / "lacks", without_a_layer, "adapter_model.safetensors")
    with pytest.raises(ValueError, match=LACKS):
        load_policy(str(lacks))
    with pytest.raises(ValueError, match=LACKS):
        load_adapter(AutoModelForCausalLM.from_pretrained(micro_policy), lacks)
    other = changed(whole, tmp_path / "other", of_another_shape, "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"an adapter must fit its base model, got .* \(size mismatch for .*lora_A"):
        load_adapter(AutoModelForCausalLM.from_pretrained(micro_policy), other)


def test_adapters_of_roles_and_their_base_have_every_tensor(micro_policy: Path, tmp_path: Path) -> None:
    whole = adapter_of(micro_policy, tmp_path / "adapter")
    run = tmp_path / "run"
    shutil.copytree(whole, run / "actor")
    changed(whole, run / "reasoner", without_a_layer, "adapter_model.safetensors")
    with pytest.raises(ValueError, match=LACKS):
        load_sampler(str(run), Sampling())
    base = changed(micro_policy, tmp_path / "base", without_a_layer)
    config = whole / "adapter_config.json"
    config.write_text(config.read_text().replace(str(micro_policy), str(base)))
    with pytest.raises(ValueError, match=r"without model\.layers\.1\.input_layernorm"):
        load_policy(str(whole))


def test_the_backbone_of_a_critic_has_every_tensor(micro_policy: Path, tmp_path: Path) -> None:
    policy, tokenizer = load_policy(str(micro_policy))
    own_backbone(str(micro_policy), policy, tokenizer, torch.device("cpu"), False)  # without its head
    lacks = changed(micro_policy, tmp_path / "lacks", without_a_layer)
    with pytest.raises(ValueError, match=r"without layers\.1\.input_layernorm"):
        own_backbone(str(lacks), policy, tokenizer, torch.device("cpu"), False)


@pytest.mark.parametrize("place", [".", "agent"])
def test_a_training_does_not_begin_with_an_adapter(
    command: Callable[..., Any], recipe: Callable[..., Path], tmp_path: Path, place: str
) -> None:
    folder = tmp_path / "adapters"
    (folder / place).mkdir(parents=True)
    (folder / place / "adapter_config.json").write_text("{}")
    for words in (("train", recipe(), "--model_name_or_path", folder), ("warm-up", folder, "--task", "sudoku")):
        code, _, err = command(*words, *(["--output", tmp_path / "new"] if words[0] == "warm-up" else []))
        assert code == 1
        assert f"must begin with a whole model, got adapters in '{folder}'; merge them into their model first" in err
