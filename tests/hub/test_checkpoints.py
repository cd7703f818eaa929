"""Checkpoints on the Hub: no pickles, loadable by stock clients, and a run goes on from one as if nothing happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import save_file
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
from hf_credit.checkpoints import MANIFEST, flaw, write_manifest
from hf_credit.collaborations.hinted_relay import hinted_relay
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.evaluation.results import EpisodeRecord, EvalResults
from hf_credit.hub.checkpoints import collect, fetch_resumable, publish_checkpoint
from hf_credit.hub.loading import fetch
from hf_credit.hub.server import Served
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.tasks import TaskSpec
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


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a model and a log, and a whole checkpoint made by hand."""
    folder = tmp_path / "run"
    checkpoint = folder / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    for place in (folder, checkpoint):
        save_file({"weight": torch.ones(2)}, place / "model.safetensors")
    torch.save({"state": {0: torch.ones(2)}}, checkpoint / "optimizer.pt")
    torch.save(None, checkpoint / "training_args.bin")
    (checkpoint / "trainer_state.json").write_text('{"global_step": 5}')
    spec = TaskSpec(environment="sudoku", environment_options={"size": 4}, history="current")
    spec.save(folder)
    spec.save(checkpoint)
    write_manifest(checkpoint, {"seed": 1})
    (folder / "metrics.jsonl").write_text(json.dumps(LOGGED) + "\n")
    facts = {"command": "hf-credit train x.yaml", "paper": {"citation": "@misc{x}"}, "versions": {"torch": "2"}}
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


LOGGED = {"step": 5, "reward": 0.25, "budget/scoring_events": 8, "budget/tokens": 90, "budget/completion_tokens": 30}


def collected(run: Path, tmp_path: Path, **options: Any) -> dict[str, Path | bytes]:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return collect(run, "me/run", "https://huggingface.co/me/run", work, **options)


def test_pickles_are_left_out_or_written_anew(run: Path, tmp_path: Path) -> None:
    files = collected(run, tmp_path)
    assert not [name for name in files if Path(name).suffix in (".pt", ".pth", ".bin")]
    assert {"model.safetensors", "trainer_state-0.safetensors", "trainer_state-0.json", MANIFEST} <= set(files)
    alone = collected(run, tmp_path, resumable=False)
    assert not [name for name in alone if name.startswith("trainer_state-")]
    manifest = json.loads(alone[MANIFEST])  # type: ignore[arg-type]
    assert manifest["resumable"] is False


def test_an_unfinished_or_damaged_checkpoint_is_refused(run: Path, tmp_path: Path) -> None:
    checkpoint = run / "checkpoint-5"
    (checkpoint / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"must be whole to be published, got .*optimizer.pt"):
        collected(checkpoint, tmp_path)
    (checkpoint / MANIFEST).unlink()
    with pytest.raises(ValueError, match=rf"whole to be published, got .* without {MANIFEST}; train on"):
        collected(checkpoint, tmp_path)


def test_shards_are_refused_where_a_run_is_to_go_on(run: Path, tmp_path: Path) -> None:
    checkpoint = run / "checkpoint-5"
    (checkpoint / "optimizer_0").mkdir()
    (checkpoint / "optimizer_0" / "__0_0.distcp").write_bytes(b"x")
    (checkpoint / MANIFEST).unlink()
    write_manifest(checkpoint, {"seed": 1})
    with pytest.raises(ValueError, match=r"got shards such as 'optimizer_0/__0_0.distcp'; save whole tensors"):
        collected(checkpoint, tmp_path)
    assert "optimizer_0/__0_0.distcp" not in collected(checkpoint, tmp_path, resumable=False)


def test_a_model_in_pickles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    torch.save({}, tmp_path / "model" / "pytorch_model.pt")
    with pytest.raises(ValueError, match="must be saved as safetensors"):
        collected(tmp_path / "model", tmp_path)


def test_a_model_that_is_not_its_checkpoints_is_published_alone(run: Path, tmp_path: Path) -> None:
    file = run / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    files = collected(run, tmp_path)
    assert files["model.safetensors"] == file
    assert MANIFEST not in files


def test_the_card_says_what_was_measured_what_it_cost_and_where_it_is_from(run: Path, tmp_path: Path) -> None:
    records = tuple(
        EpisodeRecord(seed=seed, ending="finished", outcome=1.0, metrics={"success": float(seed < 3)}, turns=2)
        for seed in range(4)
    )
    results = EvalResults(records=records, about={"dataset": "them/benchmark", "split": "test"})
    (run / "evaluation.json").write_text(results.to_json())
    (run / "README.md").write_text("---\nlicense: mit\ntags: [trl]\n---\n# Model card\n\nTRL's words.\n")
    files = collected(run, tmp_path)
    _, front, body = files["README.md"].decode().split("---\n", 2)  # type: ignore[union-attr]
    about = yaml.safe_load(front)
    assert about["license"] == "mit"
    assert about["tags"] == ["hf-credit", "reinforcement-learning", "trl"]
    (index,) = about["model-index"][0]["results"]
    assert {"type": "success", "name": "success rate", "value": 0.75} in index["metrics"]
    for said in ("TRL's words.", "| success rate | 0.750 [", "interval, n = 4)", '"scoring_events": 8', "@misc{x}"):
        assert said in body
    assert "hf-credit train x.yaml" in body
    assert "--resume_from_checkpoint hub:me/run" in body
    (entry,) = yaml.safe_load(files[".eval_results/them--benchmark.yaml"])  # type: ignore[arg-type]
    assert (entry["dataset"], entry["value"]) == ({"id": "them/benchmark", "task_id": "test"}, 0.75)
    assert "verifyToken" not in entry
    ledger = json.loads(files["ledger.json"])  # type: ignore[arg-type]
    assert (ledger["scoring_events"], ledger["completion_tokens"]) == (8, 30)


def test_a_card_that_is_written_again_says_it_once(run: Path, tmp_path: Path) -> None:
    first = collected(run, tmp_path)["README.md"]
    assert isinstance(first, bytes)
    (run / "README.md").write_bytes(first)
    assert collected(run, tmp_path)["README.md"] == first


def test_a_model_without_the_trainer_cannot_be_resumed(
    hub: Served, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    publish_checkpoint(run, "me/alone", resumable=False, token=hub.token())
    with pytest.raises(ValueError, match="must hold the state of a trainer to go on from, got the model alone"):
        fetch_resumable("hub:me/alone", tmp_path / "out")
    publish_checkpoint(run, "me/whole", token=hub.token())
    folder = fetch_resumable("hub:me/whole", tmp_path / "out")
    assert (folder, flaw(folder)) == (tmp_path / "out" / "checkpoint-5", None)
    assert torch.equal(torch.load(folder / "optimizer.pt", weights_only=True)["state"][0], torch.ones(2))
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("resumed-")] == []
