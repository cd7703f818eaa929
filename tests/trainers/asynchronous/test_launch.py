"""Trainings of two processes by `accelerate launch`, and trainings that go on with another number of processes."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate.commands.launch
import async_run
import pytest
import torch
from async_run import GROUP, TASKS, prompts_of
from launched import finish, launch, start
from micro_server import MicroServer
from transformers import Trainer, TrainerState

STEPS = 4
ON_CPU = {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def server(micro_policy: Path) -> Iterator[MicroServer]:
    served = MicroServer(micro_policy).start()
    yield served
    served.stop()


def log_of(checkpoint: Path) -> list[dict[str, Any]]:
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).log_history


def test_accelerate_launches_two_processes(server: MicroServer, micro_policy: Path, tmp_path: Path) -> None:
    settings = {"gradient_accumulation_steps": 2, "shown": True}
    command = ["--multi_gpu", "--num_machines", "1", "--num_processes", "2", "--main_process_port", "0"]
    command += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    command += [async_run.__file__, str(micro_policy), str(tmp_path), server.url, "2", json.dumps(settings)]
    log = tmp_path / "launch.log"
    # What launches is a copy; the two that it launches are started afresh, as a user's are.
    done = finish(start(accelerate.commands.launch.__file__, *command, log=log, environment=ON_CPU), log)
    assert done.count("begins") == 2
    assert len(server.loaded) == 3  # before the first update, and after each
    first, second = [entry for entry in log_of(tmp_path / "checkpoint-2") if "reward" in entry]
    assert first["server/logprob_difference"] < 1e-4
    assert second["budget/scoring_events"] == 2 * TASKS * GROUP
    lines = [
        [json.loads(line) for line in (tmp_path / f"shown-{process}.jsonl").read_text().splitlines()]
        for process in range(2)
    ]
    assert [one["episodes"] for one in lines[0]] == [one["episodes"] for one in lines[1]] == [[TASKS * GROUP, 0]] * 4


# Older ones ask torch for the device "cpu:0", which it does not know.
RESUMES_ON_CPU = 'device.type != "cpu"' in inspect.getsource(Trainer._load_optimizer_and_scheduler)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (2, 1),
        pytest.param(
            1, 2, marks=pytest.mark.skipif(not RESUMES_ON_CPU, reason="transformers resumes no two processes on a CPU")
        ),
    ],
)
def test_another_number_of_processes_goes_on_without_losing_or_doubling_an_episode(
    server: MicroServer, micro_policy: Path, tmp_path: Path, first: int, then: int
) -> None:
    def run(processes: int, steps: int, **changed: Any) -> None:
        settings = {"gradient_accumulation_steps": 2, "stop_at": steps, **changed}
        arguments = (micro_policy, tmp_path, server.url, STEPS, json.dumps(settings))
        launch(async_run.__file__, *arguments, processes=processes, folder=tmp_path, environment=ON_CPU)

    run(first, 2)
    with pytest.raises(AssertionError, match=rf"got processes {then} in place of {first} in .*resume_with_changed="):
        run(then, STEPS)
    run(then, STEPS, resume_with_changed=["processes"])
    learned = [json.loads(line) for line in (tmp_path / "learned.jsonl").read_text().splitlines()]
    assert [line["step"] for line in learned] == list(range(1, STEPS + 1))
    assert len({line["number"] for line in learned}) == STEPS
    state = torch.load(tmp_path / "checkpoint-4" / "hf_credit_state_0.pt", weights_only=True)
    worker = state["worker"]
    prompts = [tuple(prompt) for line in learned for prompt in line["prompts"]]
    opening = prompts_of(micro_policy, TASKS * (STEPS + 20))
    played = Counter(opening[prompt] for prompt in prompts if prompt in opening)
    assert set(played.values()) == {GROUP}
    assert len(played) == STEPS * TASKS
    waiting = [task for name in ("finished", "under_way") for one in worker[name] for task in one["tasks"]]
    assert worker["again"] == []
    assert len(played) + len(waiting) == worker["next_task"]
    assert state["ledger"]["scoring_events"] == GROUP * len(played)
