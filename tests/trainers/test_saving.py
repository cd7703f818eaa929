from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from hf_credit.loading import load_model
from hf_credit.trainers.saving import name_base


def test_an_adapter_on_a_folder_is_loaded_from_every_other_one(
    micro_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "warm").symlink_to(micro_policy)
    monkeypatch.chdir(tmp_path)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("runs/warm"), lora)
    name_base(model, SimpleNamespace(model_init_kwargs={"revision": "v1"}))
    model.save_pretrained("adapter")
    monkeypatch.chdir("/")
    assert load_model(tmp_path / "adapter").peft_config["default"].revision == "v1"
