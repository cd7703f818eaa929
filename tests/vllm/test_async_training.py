"""Asynchronous trainings through a real vLLM server on a CPU: weights by a folder, an adapter by its name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerState

pytestmark = pytest.mark.vllm

RUN = Path(__file__).resolve().parents[1] / "processes" / "async_run.py"
STEPS = 3
STALENESS = 2


# How weights pass to a server, with what a server takes at its start for it: one with adapters reloads no weights.
TRANSFERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "weights": ({}, ()),
    "an adapter": (
        {"weight_transfer": "trl", "lora_r": 4},
        ("--enable-lora", "--max-loras", str(STALENESS + 2), "--max-lora-rank", "8"),
    ),
}


@pytest.fixture(params=TRANSFERS)
def served(request: pytest.FixtureRequest, serve: Any, untied_policy: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a server for a transfer, and the settings of a training that uses it."""
    settings, flags = TRANSFERS[request.param]
    variables = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    for server in serve(untied_policy, variables, flags):
        yield server.url, settings


def updates_of(policy: Path, output: Path, url: str, env: dict[str, str], **settings: Any) -> list[dict[str, Any]]:
    """What a training logged of its updates."""
    order = json.dumps({"max_staleness": STALENESS, **settings})
    output.mkdir()
    command = [sys.executable, RUN, policy, output, url, str(STEPS), order]
    run = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", check=False)
    assert run.returncode == 0, run.stderr[-5000:]
    log = TrainerState.load_from_json(str(output / f"checkpoint-{STEPS}" / "trainer_state.json")).log_history
    return [entry for entry in log if "reward" in entry]


def test_a_server_plays_with_the_weights_that_are_trained(
    served: tuple[str, dict[str, Any]], untied_policy: Path, vllm_env: dict[str, str], tmp_path: Path
) -> None:
    url, settings = served
    updates = updates_of(untied_policy, tmp_path / "run", url, vllm_env, **settings)
    assert [entry["step"] for entry in updates] == [1, 2, 3]
    assert updates[0]["server/logprob_difference"] < 1e-3
    assert updates[0]["ratio"] == pytest.approx(1, abs=1e-3)
    assert all(0.5 < entry["ratio"] < 2 for entry in updates)  # a few updates of staleness, and not another policy
    assert all(entry["endings/error"] == 0 for entry in updates)
