"""Trainings with a policy that a server on loopback serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from async_update import Nowhere
from datasets import Dataset
from micro_server import MicroServer
from small_runs import ON_A_PROCESSOR

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, make
from hf_credit.cli.report import report
from hf_credit.evaluation.credited import read_episodes
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.trainers.recording import RunRecorder


@pytest.fixture
def server(micro_policy: Path) -> Iterator[MicroServer]:
    served = MicroServer(micro_policy).start()
    yield served
    served.stop()


def trainer_of(server: MicroServer, policy: Path, output: Path, **changed: Any) -> AsyncCreditTrainer:
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "max_steps": 3,
        "instances_per_update": 4,
        "max_completion_length": 12,
        "learning_rate": 1e-3,
        "vllm_server_base_url": server.url,
        "weight_transfer": "folder",
        "token_budget": 4096,
    }
    kwargs = changed.pop("trainer_kwargs", {})
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)
    settings = AsyncCreditConfig(**{**values, **changed})
    return AsyncCreditTrainer(str(policy), game, settings, method="verifiable_process", **kwargs)


def test_a_training_learns_from_episodes_that_a_server_plays_meanwhile(
    server: MicroServer, micro_policy: Path, tmp_path: Path
) -> None:
    held_out = {"eval_dataset": Dataset.from_list([{"seed": seed} for seed in (1, 2)])}
    trainer = trainer_of(server, micro_policy, tmp_path, eval_strategy="steps", eval_steps=2, trainer_kwargs=held_out)
    trainer.add_callback(RunRecorder({}, {}))
    trainer.train()
    played = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["step"] for entry in played] == [1, 2, 3]
    assert played[0]["server/logprob_difference"] < 1e-4
    assert played[0]["ratio"] == pytest.approx(1, abs=1e-4)
    assert all(entry["oracle/valid"] > 0 for entry in played)
    evaluated = [entry for entry in trainer.state.log_history if "eval_success" in entry]
    assert [entry["step"] for entry in evaluated] == [2, 3]
    assert not any("advantages" in name for entry in evaluated for name in entry)
    # Once before anything is played, and after each update; what is served is what is trained.
    assert len(server.loaded) == 4
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(server.model.state_dict()[name], value), name
    assert {one.update for one in read_episodes(tmp_path)} >= {1, 2, 3}
    report(tmp_path)


def test_a_server_with_other_weights_is_refused(
    server: MicroServer, micro_policy_append: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(server, micro_policy_append, tmp_path, trainer_kwargs={"weight_transfer": Nowhere()})
    trainer.server.model = server.name  # type: ignore[union-attr]
    with pytest.raises(
        ValueError, match=r"must serve the weights that are trained, got log-probabilities \S+ nats apart"
    ):
        trainer.train()
    assert server.asked == 1  # for the comparison: nothing was played


def test_a_server_that_is_not_there_is_told_before_a_model_is_loaded(micro_policy: Path, tmp_path: Path) -> None:
    server = MicroServer(micro_policy).start()
    server.stop()
    with pytest.raises(ConnectionError, match=r"must be up within 0\.1 s"):
        trainer_of(server, micro_policy, tmp_path, vllm_server_timeout=0.1)
