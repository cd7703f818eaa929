"""The results of all five methods: published, loaded by clients that know nothing of this library, and resumed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback

from hf_credit import (
    ConstrainedCounterfactualConfig,
    ConstrainedCounterfactualTrainer,
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
from hf_credit.hub import (
    EpisodeSet,
    fetch,
)
from hf_credit.hub.server import Served
from hf_credit.oracles.evidence_play import EvidenceOracle
from hf_credit.policies.micro import MicroConfig, init_policy
from hf_credit.rollouts import EnvironmentInteraction, Start
from hf_credit.trainers.credit import CreditCallback
from hf_credit.trainers.recording import RunRecorder

METRICS = Path(__file__).resolve().parents[2] / "hub_assets" / "metrics"
LIBRARY = Path(__file__).resolve().parents[2] / "src"

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


def vpr(policies: Policies, **changed: Any) -> Any:
    own = {"history": "current", "instructions": False, "temperature": 1.0, "max_completion_length": 12}
    args = VerifiableProcessConfig(**{**SETTINGS, **own, **changed})
    return VerifiableProcessTrainer(str(policies.sudoku), make("sudoku", size=4, blanks=4), args)


def t3(policies: Policies, **changed: Any) -> Any:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), **GAME)
    rows = Dataset.from_list([{"seed": seed} for seed in range(8)])
    return TruncatedPPOTrainer(str(policies.sudoku), game, TruncatedPPOConfig(**{**SETTINGS, **changed}), rows)


def c3(policies: Policies, **changed: Any) -> Any:
    team = relay(size=4)
    team.scorer = uneven  # type: ignore[attr-defined]
    roles = {"role_adapters": ["reasoner", "actor"], "max_context_tokens": None, "max_completion_length": 2}
    rows = Dataset.from_list([relay_task(secret, shift, 4) for secret in (1, 2) for shift in (1, 2, 3)])
    args = ReplayLOOConfig(**{**SETTINGS, **roles, **changed})
    return ReplayLOOTrainer(str(policies.sudoku), team, args, rows, peft_config=LORA)


def ccpo(policies: Policies, **changed: Any) -> Any:
    team = hinted_relay(4)
    team.scorer = uneven  # type: ignore[attr-defined]
    own = {"group_size": 3, "min_samples": 1, "switch_every": 1, "max_context_tokens": None}
    args = CounterfactualGRPOConfig(**{**SETTINGS, **own, "max_completion_length": 2, **changed})
    return CounterfactualGRPOTrainer(str(policies.sudoku), team, args, team.tasks("train", 8), peft_config=LORA)


def cvt(policies: Policies, **changed: Any) -> Any:
    played = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    own = {"group_size": 2, "steps": 1.0, "branches": 1, "trust_region_top": 32, "trust_region_wide": 32}
    reading = {"max_completion_length": 10, "max_context_tokens": 512, "rows_per_forward": 32, "temperature": 1.0}
    args = ConstrainedCounterfactualConfig(**{**SETTINGS, **own, **reading, **changed})
    return ConstrainedCounterfactualTrainer(str(policies.evidence), played, args, played.tasks("train", 8))


METHODS: dict[str, Callable[..., Any]] = {"vpr": vpr, "c3": c3, "t3": t3, "ccpo": ccpo, "cvt": cvt}
METRIC_OF = {
    "vpr": "credit_fidelity",
    "c3": "context_variance",
    "t3": "cut_quality",
    "ccpo": "vote_contribution",
    "cvt": "constraint_violation",
}


class StopAfter(TrainerCallback):
    """Ends a run early, as a machine that is taken away does after its checkpoint."""

    def __init__(self, updates: int | None) -> None:
        self.updates = updates

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.updates:
            control.should_training_stop = control.should_save = True


class Keep(CreditCallback):
    """The episodes of the last update, with their credit."""

    def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
        credits = {
            decision.id: value
            for sample, values in zip(collected.trained, credit.decisions, strict=True)
            for decision, value in zip(sample.episode.decisions, values, strict=True)
        }
        self.episodes = EpisodeSet(
            episodes=tuple(collected.episodes),
            interaction=trainer.interaction,
            starts=tuple(
                Start[Any](task={"instance": one.instance}, seed=place) for place, one in enumerate(collected.trained)
            ),
            credits={trainer.method.name: credits},
        )


@dataclass(frozen=True)
class Policies:
    """Tiny policies that the methods start from."""

    sudoku: Path
    evidence: Path


@pytest.fixture(scope="module")
def policies(micro_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Policies:
    game = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    starts = [Start[Any](task={"seed": seed}, seed=seed) for seed in range(48)]
    config = MicroConfig(hidden_size=32, layers=2, heads=2, episodes=48, epochs=8, batch_rows=16, learning_rate=8e-3)
    return Policies(
        micro_policy, init_policy(game, EvidenceOracle(), starts, tmp_path_factory.mktemp("evidence"), config)
    )


def train(name: str, policies: Policies, output: Path, stop: int | None = None, **changed: Any) -> Any:
    resume = changed.pop("resume", None)
    trainer = METHODS[name](policies, output_dir=str(output), **changed)
    facts = {"command": "hf-credit train recipe.yaml", "paper": dict(trainer._paper)}
    trainer.add_callback(RunRecorder({"seed": trainer.args.seed}, facts))
    trainer.add_callback(StopAfter(stop))
    trainer.add_callback(Keep())
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@dataclass(frozen=True)
class Cut:
    """A run that ended early, and what it published."""

    trainer: Any
    folder: Path
    episodes: EpisodeSet
    token: str


@pytest.fixture(scope="module")
def cut(hub: Served, policies: Policies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cut]]:
    """`cut(method)`: a run that was pushed to `me/<method>` when it was cut; one for all tests."""
    token = hub.token()

    @functools.cache
    def run(name: str) -> Cut:
        pushing = {"push_to_hub": True, "hub_model_id": f"me/{name}", "hub_token": token, "hub_strategy": "end"}
        folder = tmp_path_factory.mktemp(name)
        trainer = train(name, policies, folder, stop=2, **pushing)
        trainer.push_to_hub()
        (keep,) = (one for one in trainer.callback_handler.callbacks if isinstance(one, Keep))
        return Cut(trainer, folder, keep.episodes, token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        yield run


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """Of the policy, its adapters and its critics, where it has any."""
    found = dict(trainer.model.state_dict())
    critic = getattr(trainer, "critic", None)
    if critic is not None and hasattr(critic, "state_dict"):
        found |= {f"critic.{name}": value for name, value in critic.state_dict().items()}
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_run_resumed_from_the_hub_ends_bitwise_as_one_undisturbed(
    name: str, cut: Callable[[str], Cut], hub: Served, policies: Policies, tmp_path: Path
) -> None:
    first = cut(name)
    undisturbed = train(name, policies, tmp_path / "whole")
    fetched = fetch(f"me/{name}", repo_type="model", endpoint=hub.url)
    assert not [path for path in fetched.files if Path(path).suffix in (".bin", ".pt", ".pth")]
    assert not [path for path, file in fetched.files.items() if first.token.encode() in file.read_bytes()]
    for path in first.folder.rglob("training_args.bin"):
        assert first.token.encode() not in path.read_bytes()
    resumed = train(
        name, policies, tmp_path / "other", resume=f"hub:me/{name}@{fetched.commit}", hub_token=first.token
    )
    before, expected, found = weights(first.trainer), weights(undisturbed), weights(resumed)
    assert found.keys() == expected.keys()
    assert [key for key, value in expected.items() if not torch.equal(value, found[key])] == []
    assert [key for key, value in expected.items() if not torch.equal(value, before[key])]  # the last update counts
    logged = [json.loads(line)["step"] for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(logged)) == [1, 2, 3]
