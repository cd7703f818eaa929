"""What a long run meets: an interrupt, a full disk, folders of others, weights that hardly move."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from hf_credit import CreditConfig, CreditTrainer, make
from hf_credit.checkpoints import MANIFEST
from hf_credit.hub.checkpoints import _places
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.trainers import recording


def trainer_of(policy: Any, folder: Path, **settings: Any) -> CreditTrainer:
    values = {
        "output_dir": str(folder),
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "max_completion_length": 4,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "gradient_checkpointing": False,
        "logging_steps": 1,
        **settings,
    }
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current", False)
    rows = interaction.tasks("train", 64)
    held_out = interaction.tasks("held_out", 4) if "eval_strategy" in settings else None
    name = policy if isinstance(policy, str) else policy.config._name_or_path
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    return CreditTrainer(
        policy,
        interaction,
        CreditConfig(**values),
        rows if values["max_steps"] > 0 else rows.select(range(8)),
        eval_dataset=held_out,
        method="outcome_reward",
        processing_class=tokenizer,
    )


def warnings_in(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and words in one.getMessage()]


def test_a_training_after_an_interrupted_one_begins_with_rollouts_of_its_own(
    micro_policy: Path, tmp_path: Path
) -> None:
    class Interrupt(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

    trainer = trainer_of(str(micro_policy), tmp_path, gradient_accumulation_steps=2, instances_per_update=None)
    interrupt = Interrupt()
    trainer.add_callback(interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(interrupt)
    assert trainer._step == 1
    trainer.train()
    assert trainer._step == 4


def test_a_full_disk_ends_the_records_and_not_the_training(
    micro_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording, "append", full)
    trainer = trainer_of(str(micro_policy), tmp_path, max_steps=3)
    trainer.train()
    assert trainer.state.global_step == 3
    for name in ("metrics.jsonl", "episodes.jsonl"):
        (told,) = warnings_in(caplog, f"and later ones are not in {name}")
        assert told.startswith("update 1 ")


def test_a_limit_of_checkpoints_deletes_no_folder_of_others(micro_policy: Path, tmp_path: Path) -> None:
    other = tmp_path / "checkpoint-7"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    best = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    best |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_reward", "greater_is_better": True}
    trainer = trainer_of(str(micro_policy), tmp_path, save_total_limit=1, **best)
    trainer.train()
    assert (other / "mine.txt").is_file()
    assert trainer.args.save_total_limit == 1
    kept = {path.name for path in tmp_path.glob("checkpoint-*") if (path / MANIFEST).is_file()}
    assert Path(trainer.state.best_model_checkpoint).name in kept
    written = torch.load(tmp_path / max(kept) / "training_args.bin", weights_only=False)
    assert written.save_total_limit == 1


@pytest.mark.parametrize(("dtype", "told"), [(torch.bfloat16, 1), (torch.float32, 0)])
def test_weights_that_lose_small_updates_are_named(
    micro_policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, dtype: torch.dtype, told: int
) -> None:
    model = AutoModelForCausalLM.from_pretrained(micro_policy, dtype=dtype)
    trainer_of(model, tmp_path, max_steps=1).train()
    assert len(warnings_in(caplog, "trained weights are torch.bfloat16, in which small updates are lost")) == told


def test_an_evaluation_at_the_end_of_an_epoch_hides_no_metric_of_the_training(
    micro_policy: Path, tmp_path: Path
) -> None:
    settings = {"max_steps": -1, "num_train_epochs": 2, "logging_strategy": "epoch"}
    trainer = trainer_of(str(micro_policy), tmp_path, eval_strategy="steps", eval_steps=1, **settings)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 2
    assert all("reward" in entry for entry in logged)


def test_the_best_model_of_roles_in_folders_is_published_and_not_the_latest(tmp_path: Path) -> None:
    latest = tmp_path / "checkpoint-2"
    for folder, content in ((tmp_path, b"best"), (latest, b"last")):
        (folder / "solver").mkdir(parents=True)
        (folder / "solver" / "adapter_model.safetensors").write_bytes(content)
    (latest / MANIFEST).write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_credit.hub.checkpoints.latest_complete", lambda folder: latest)
        assert _places(tmp_path) == (tmp_path, tmp_path)
        (tmp_path / "solver" / "adapter_model.safetensors").write_bytes(b"last")
        assert _places(tmp_path) == (latest, tmp_path)
