"""Roles with adapters of their own, which a server serves by their names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import async_roles
import pytest
import torch
from async_roles import ROLES, build
from async_update import Nowhere
from launched import launch
from micro_server import MicroServer
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer
from hf_credit.collaborations.relay import relay
from hf_credit.credit import clipped_surrogate
from hf_credit.rollouts import Row

FILE = "adapter_model.safetensors"


@pytest.fixture
def server(policy: Path) -> Iterator[MicroServer]:
    served = MicroServer(policy).start()
    served.max_loras = 8
    yield served
    served.stop()


def expected(policy: Path, folders: dict[str, str], rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """By plain autograd, a pass for each row under the adapter of its role."""
    base = AutoModelForCausalLM.from_pretrained(policy, attn_implementation="eager")
    model: Any = PeftModel.from_pretrained(base, folders[ROLES[0]], ROLES[0], is_trainable=True)
    model.load_adapter(folders[ROLES[1]], ROLES[1], is_trainable=True)
    tokens = sum(sum(one.loss_mask) for one in rows)
    for one in rows:
        if not any(one.loss_mask):
            continue
        model.set_adapter(one.role)
        ids = torch.tensor([one.prompt_ids + one.completion_ids])
        scores = model(input_ids=ids[:, :-1]).logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        own, mask = scores[:, len(one.prompt_ids) - 1 :], torch.tensor([one.loss_mask])
        assert one.logprobs is not None
        told = torch.tensor([one.logprobs])
        assert ((own - told) * mask).abs().max() < 1e-4  # the role's own adapter replied
        losses = clipped_surrogate(own, told, torch.tensor([one.advantages]), mask).losses
        ((losses * mask).sum() / tokens).backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


def first_folders(server: MicroServer) -> dict[str, str]:
    return {role: folder for role in ROLES for name, folder in server.adapters.items() if name.endswith(f"{role}-v1")}


@pytest.mark.parametrize("processes", [1, 2])
def test_each_role_learns_from_its_own_replies(
    server: MicroServer, policy: Path, tmp_path: Path, processes: int
) -> None:
    environment = {"ACCELERATE_USE_CPU": "true"}
    arguments = (policy, tmp_path, server.url, json.dumps({}))
    launch(async_roles.__file__, *arguments, processes=processes, folder=tmp_path, environment=environment)
    left = torch.load(tmp_path / "left.pt")
    rows = [Row(**row) for row in left["rows"][0]]
    assert {row.role for row in rows if any(row.loss_mask)} == set(ROLES)
    wanted = expected(policy, first_folders(server), rows)
    found = left["gradient"][0]
    largest = max(value.abs().max().item() for value in wanted.values())
    assert largest > 1e-3
    assert wanted.keys() == {name for name, value in found.items() if value.abs().max() > 0}
    for name, value in wanted.items():
        assert (found[name] - value).abs().max().item() <= 1e-4 * largest, name
    assert left["processes"] == processes
    assert left["log"][0]["server/logprob_difference"] < 1e-4
    assert left["log"][0]["ratio"] == pytest.approx(1, abs=1e-4)
    versions = sorted(name.split("-", 2)[2] for name in server.adapters)
    assert versions == sorted(f"{role}-v{version}" for role in ROLES for version in (1, 2))


def test_roles_learn_by_turns_and_a_resumed_run_goes_on(server: MicroServer, policy: Path, tmp_path: Path) -> None:
    turns = {"role_schedule": "alternating", "switch_every": 1, "gradient_accumulation_steps": 1, "max_steps": 2}
    saving = {"save_strategy": "steps", "save_steps": 1}

    def changed(first: int) -> set[str]:
        """The roles whose adapter is another one in the version after."""
        folders = {name.split("-", 2)[2]: Path(folder) for name, folder in server.adapters.items()}
        return {
            role
            for role in ROLES
            if (folders[f"{role}-v{first}"] / FILE).read_bytes()
            != (folders[f"{role}-v{first + 1}"] / FILE).read_bytes()
        }

    whole = build(policy, tmp_path, server.url, **turns, **saving)
    whole.train()
    assert [changed(1), changed(2)] == [{"reasoner"}, {"actor"}]
    assert [entry["role/learning"] for entry in whole.state.log_history if "reward" in entry] == [0.0, 1.0]
    held, server.adapters = dict(server.adapters), {}
    whole.server.restore()  # another process in the server's place has none of them
    assert server.adapters == held
    shutil.rmtree(tmp_path / "checkpoint-2")
    server.adapters.clear()
    again = build(policy, tmp_path, server.url, **turns, **saving)
    again.train(resume_from_checkpoint=True)
    assert changed(2) == {"actor"}
    kept = [path.name for path in (tmp_path / ".vllm_lora").iterdir()]
    assert len({name.split("-")[1] for name in kept}) == 1  # none of the run before
    (step,) = [entry for entry in again.state.log_history if entry.get("step") == 2 and "reward" in entry]
    assert step["server/logprob_difference"] < 1e-4  # the server got the adapters of the checkpoint


def test_what_does_not_go_with_adapters_of_roles_is_refused(server: MicroServer, policy: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"weight_transfer='trl', .* got 'folder'; leave it out"):
        build(policy, tmp_path, server.url, weight_transfer="folder")
    with pytest.raises(ValueError, match="must have a forward pass for each of 2 roles, got 1; raise"):
        build(policy, tmp_path, server.url, gradient_accumulation_steps=1)
    server.max_loras = 7
    with pytest.raises(ValueError, match=r"max_staleness \+ 2 adapters of each role, 8 here, got 7; start it with"):
        build(policy, tmp_path, server.url)
    server.max_loras = 0
    with pytest.raises(ValueError, match="role_adapters must be served by their names, got a server"):
        build(policy, tmp_path, server.url)
    args = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": "none", "max_steps": 1}
    with pytest.raises(ValueError, match=r"weight_transfer='trl', .* got Nowhere; leave it out"):
        AsyncCreditTrainer(
            str(policy),
            relay(size=4),
            AsyncCreditConfig(role_adapters=ROLES, **args),
            method="rloo",
            peft_config=LoraConfig(r=2, target_modules=["q_proj"]),
            weight_transfer=Nowhere(),
        )
