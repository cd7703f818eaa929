"""A run pushes its policy to a local Hub, from which a standard client loads it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import HfApi, constants
from peft import PeftModel
from transformers import AutoModelForCausalLM

from hf_credit.hub.checkpoints import publish_checkpoint
from hf_credit.hub.loading import fetch
from hf_credit.tasks.spec import TaskSpec
from local_hub.running import serving


def test_an_adapter_is_pushed_once_with_its_game_and_can_be_loaded(
    command: Callable[..., Any],
    recipe: Callable[..., Path],
    micro_policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    path = recipe(max_steps=1, warmup_steps=0, push_to_hub=True, use_peft=True, lora_r=4)
    with serving(tmp_path / "hub") as hub:
        token = hub.token("me", "write")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", token)
        code, _, err = command("train", str(path), "--hub_token", token)
        assert (code, list((path.parent / "run").glob("checkpoint-*"))) == (1, [])
        assert f"must name a base model that others can load, got {str(micro_policy)!r}, which is a folder" in err
        publish_checkpoint(micro_policy, "me/base", endpoint=hub.url, token=token)
        base = fetch("me/base", repo_type="model", endpoint=hub.url, cache_dir=tmp_path / "cache")
        words = ("train", str(path), "--hub_token", token, "--model_name_or_path", str(base.folder))
        monkeypatch.setattr(sys, "argv", ["hf-credit", *words])  # which the run records
        code, _, err = command(*words)
        assert code == 0, err
        api = HfApi(endpoint=hub.url, token=token)
        (model,) = (one for one in api.list_models() if one.id != "me/base")
        pushed = [one for one in api.list_repo_commits(model.id) if "Hf-Credit-Publish" in one.message]
        assert len(pushed) == 1
        folder = fetch(model.id, repo_type="model", endpoint=hub.url, cache_dir=tmp_path / "cache").folder
        assert model.id == f"me/{path.parent.joinpath('run').name}"
    run = path.parent / "run"
    named = json.loads((folder / "adapter_config.json").read_text())
    assert (named["base_model_name_or_path"], named["revision"]) == ("me/base", base.commit)
    for name in ("adapter_model.safetensors", "run.json"):
        assert (folder / name).read_bytes() == (run / name).read_bytes(), name
    for one in [*folder.rglob("*"), *run.rglob("*")]:
        assert not one.is_file() or token.encode() not in one.read_bytes(), one
    assert "--hub_token '***'" in (folder / "README.md").read_text()
    assert TaskSpec.load(folder) == TaskSpec.load(run)
    base = AutoModelForCausalLM.from_pretrained(micro_policy)
    tokens = torch.arange(12)[None]
    before = base(tokens).logits.detach()
    loaded = PeftModel.from_pretrained(base, folder)
    assert not torch.equal(loaded(tokens).logits, before)
