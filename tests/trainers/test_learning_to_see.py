"""A micro policy learns to see: it fills the Sudoku that it is shown, and none that it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make
from hf_credit.evaluation.play import evaluate_policy
from hf_credit.policies.micro import MicroConfig
from hf_credit.policies.saved import SavedPolicy
from hf_credit.rollouts import EnvironmentInteraction, Interaction, Request
from hf_credit.rollouts.interaction import Wrapper
from hf_credit.tasks import TaskSpec
from hf_credit.tasks.rows import evaluation_starts, starts_of
from hf_credit.trainers.micro import init_scripted_policy

BLANKS = 2
SUDOKU = make("sudoku", size=4, blanks=BLANKS, notation="picture")
INTERACTION = EnvironmentInteraction(SUDOKU, history="current", instructions=False)
EPISODES = 3500


class Elsewhere(Wrapper[Any, Any]):
    """Shows what another task shows first."""

    def pending(self, state: Any) -> tuple[Request, ...]:
        (shown,) = self.inner.pending(self.inner.start({}, state.world.seed + 1))
        return tuple(replace(request, messages=shown.messages) for request in self.inner.pending(state))


def success(folder: Path, interaction: Interaction[Any]) -> float:
    spec = TaskSpec.load(folder)
    assert spec is not None
    policy = SavedPolicy(str(folder), spec, INTERACTION)
    torch.manual_seed(0)
    starts = evaluation_starts(INTERACTION, 256)
    return evaluate_policy(policy.samplers(), policy.chat, interaction, starts).summary()["success"].mean


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that imitated a player of which seven moves of ten are right."""
    folder = tmp_path_factory.mktemp("seeing") / "base"
    starts = starts_of(INTERACTION.tasks("train", EPISODES), "train")
    config = MicroConfig(layers=1, episodes=EPISODES, batch_rows=16, seed=5)
    return init_scripted_policy(INTERACTION, INTERACTION.scripted_player(0.7), starts, folder, config, callbacks=[])


@pytest.fixture(scope="module")
def trained(base: Path) -> Path:
    folder = base.with_name("trained")
    args = VerifiableProcessConfig(
        output_dir=str(folder),
        max_steps=64,
        instances_per_update=16,
        per_device_train_batch_size=16,
        steps_per_generation=8,
        max_completion_length=6,
        learning_rate=1e-3,
        lr_scheduler_type="constant_with_warmup",
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
    )
    trainer = VerifiableProcessTrainer(str(base), INTERACTION, args, INTERACTION.tasks("train", 512))
    trainer.train()
    trainer.save_model()
    return folder


def test_success_rises(base: Path, trained: Path) -> None:
    assert success(trained, INTERACTION) > success(base, INTERACTION) + 0.1


def test_with_the_pictures_of_other_tasks_nothing_is_left(trained: Path) -> None:
    assert success(trained, Elsewhere(INTERACTION)) < 0.05
