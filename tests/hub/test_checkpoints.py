"""Checkpoints on the Hub: no pickles, loadable by stock clients, and a run goes on from one as if nothing happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback

from hf_credit import (
    CounterfactualGRPOConfig,
    CounterfactualGRPOTrainer,
    ReplayLOOConfig,
    ReplayLOOTrainer,
    TruncatedPPOConfig,
    TruncatedPPOTrainer,
    VerifiableProcessConfig,
    VerifiableProcessTrainer,
    make,
)
from hf_credit.collaborations.hinted_relay import hinted_relay
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.hub.loading import fetch
from hf_credit.hub.server import Served
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.trainers.recording import RunRecorder

SETTINGS: dict[str, Any] = {
    "instances_per_update": 2,
    "per_device_train_batch_size": 2,
    "max_steps": 3,
    "max_completion_length": 4,
    "temperature": 5.0,
    "top_p": 1.0,
    "top_k": 0,
    "learning_rate": 1e-2,
    "warmup_steps": 0,
    "bf16": False,
    "gradient_checkpointing": False,
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "steps",
    "save_steps": 1,
    "logging_steps": 1,
    "disable_tqdm": True,
}
LORA = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
GAME: dict[str, Any] = {"history": "current", "instructions": False, "max_turns": 2}


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages differ in worth."""
    return sum(map(ord, text)) % 5 / 4


class StopAfter(TrainerCallback):
    """Ends a run early, as a machine that is taken away does after its checkpoint."""

    def __init__(self, updates: int | None) -> None:
        self.updates = updates

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.updates:
            control.should_training_stop = control.should_save = True


def vpr(policy: Path, **changed: Any) -> Any:
    args = VerifiableProcessConfig(**{**SETTINGS, **{k: v for k, v in GAME.items() if k != "max_turns"}, **changed})
    return VerifiableProcessTrainer(str(policy), make("sudoku", size=4, blanks=4), args)


def t3(policy: Path, **changed: Any) -> Any:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), **GAME)
    rows = Dataset.from_list([{"seed": seed} for seed in range(8)])
    return TruncatedPPOTrainer(str(policy), game, TruncatedPPOConfig(**{**SETTINGS, **changed}), rows)


def c3(policy: Path, **changed: Any) -> Any:
    team = relay(size=4)
    team.scorer = uneven  # type: ignore[attr-defined]
    roles = {"role_adapters": ["reasoner", "actor"], "max_context_tokens": None, "max_completion_length": 2}
    rows = Dataset.from_list([relay_task(secret, shift, 4) for secret in (1, 2) for shift in (1, 2, 3)])
    args = ReplayLOOConfig(**{**SETTINGS, **roles, **changed})
    return ReplayLOOTrainer(str(policy), team, args, rows, peft_config=LORA)


def ccpo(policy: Path, **changed: Any) -> Any:
    team = hinted_relay(4)
    team.scorer = uneven  # type: ignore[attr-defined]
    own = {"group_size": 3, "min_samples": 1, "switch_every": 1, "max_context_tokens": None}
    args = CounterfactualGRPOConfig(**{**SETTINGS, **own, "max_completion_length": 2, **changed})
    return CounterfactualGRPOTrainer(str(policy), team, args, team.tasks("train", 8), peft_config=LORA)


METHODS: dict[str, Callable[..., Any]] = {"vpr": vpr, "c3": c3, "t3": t3, "ccpo": ccpo}


def train(build: Callable[..., Any], policy: Path, output: Path, stop: int | None = None, **changed: Any) -> Any:
    resume = changed.pop("resume", None)
    trainer = build(policy, output_dir=str(output), **changed)
    facts = {"command": "hf-credit train recipe.yaml", "paper": dict(trainer._paper)}
    trainer.add_callback(RunRecorder({"seed": trainer.args.seed}, facts))
    trainer.add_callback(StopAfter(stop))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """Of the policy, its adapters and its critic, where it has one."""
    critic = getattr(trainer, "critic", None)
    found = dict(trainer.model.state_dict())
    if critic is not None and hasattr(critic, "state_dict"):
        found |= {f"critic.{name}": value for name, value in critic.state_dict().items()}
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_run_resumed_from_the_hub_ends_bitwise_as_one_undisturbed(
    name: str, hub: Served, micro_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    token = hub.token()
    undisturbed = train(METHODS[name], micro_policy, tmp_path / "whole")
    pushing = {"push_to_hub": True, "hub_model_id": f"me/{name}", "hub_token": token, "hub_strategy": "end"}
    first = train(METHODS[name], micro_policy, tmp_path / "cut", stop=2, **pushing)
    first.push_to_hub()
    fetched = fetch(f"me/{name}", repo_type="model", endpoint=hub.url)
    assert not [path for path in fetched.files if Path(path).suffix in (".bin", ".pt", ".pth")]
    assert not [path for path, file in fetched.files.items() if token.encode() in file.read_bytes()]
    for path in (tmp_path / "cut").rglob("training_args.bin"):
        assert token.encode() not in path.read_bytes()
    resumed = train(
        METHODS[name], micro_policy, tmp_path / "other", resume=f"hub:me/{name}@{fetched.commit}", hub_token=token
    )
    expected = weights(undisturbed)
    found = weights(resumed)
    assert found.keys() == expected.keys()
    assert [key for key, value in expected.items() if not torch.equal(value, found[key])] == []
    logged = [json.loads(line)["step"] for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(logged)) == [1, 2, 3]
