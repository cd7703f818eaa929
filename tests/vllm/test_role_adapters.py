"""Each role's replies come from vLLM with the role's present weights, and with no other role's."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.vllm

# As in test_rollouts.py: both compute in float32, in another order of sums.
TOLERANCE = 1e-4
# Beyond this the replies are another role's.
DIFFERENT = 0.05
ROLES = ["reasoner", "actor"]


@pytest.fixture
def backend(request: pytest.FixtureRequest, mode: str) -> dict[str, Any]:
    """The settings of a run through one of vLLM's modes."""
    if mode == "colocate":
        return {"vllm_mode": "colocate", "vllm_max_model_length": 1024}
    return {"vllm_mode": "server", "vllm_server_base_url": request.getfixturevalue("role_server").url}


def run(policy: Path, output: Path, env: dict[str, str], **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("play_roles.py")), str(policy), str(output)]
    return subprocess.run(
        [*command, json.dumps(settings)], env=env, capture_output=True, text=True, errors="replace", check=False
    )


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_every_role_speaks_through_vllm_with_its_own_present_adapter(
    backend: dict[str, Any], policy: Path, vllm_env: dict[str, str], tmp_path: Path
) -> None:
    turns = {"role_schedule": "alternating", "switch_every": 1, "max_steps": 3}
    result = run(policy, tmp_path, vllm_env, **backend, **turns)
    assert result.returncode == 0, result.stderr[-5000:]
    found = json.loads((tmp_path / "found.json").read_text())
    for update in found["updates"]:
        assert update["own"] < TOLERANCE
        assert min(update[role] for role in ROLES) > DIFFERENT
    assert max(found["drift"]) < TOLERANCE
    # Both at first, then whoever has learned.
    assert [update["pushed"] for update in found["updates"]] == [2, 3, 4]
    for role, learned in (("reasoner", [True, False]), ("actor", [False, True])):
        held = [update["weights"][role] for update in found["updates"]]
        assert [before != after for before, after in itertools.pairwise(held)] == learned
    assert not list(tmp_path.glob("_vllm_*"))


def test_a_server_without_room_for_the_adapters_is_refused(
    server: Any, vllm_env: dict[str, str], tmp_path: Path
) -> None:
    result = run(server.policy, tmp_path, vllm_env, vllm_mode="server", vllm_server_base_url=server.url)
    assert result.returncode != 0
    assert "must take 2 adapters of rank 2 for these role_adapters, got none at" in result.stderr
    assert "start it with --enable-lora --max-loras 2 --max-lora-rank 8" in result.stderr
