"""A vLLM server that stops, dies or cannot take weights ends a run with one sentence, and nothing written is lost."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.vllm

Play = Callable[..., subprocess.CompletedProcess[str]]


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """What a run that fails says last."""
    assert result.returncode != 0
    return result.stderr.strip().splitlines()[-1]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_server_that_stops_answering_is_given_up(play: Play, server: Any, tmp_path: Path) -> None:
    try:
        result = play(
            server.policy,
            tmp_path,
            signal={"group": server.process.pid, "signal": signal.SIGSTOP, "step": 0},
            vllm_mode="server",
            vllm_server_base_url=server.url,
            vllm_server_request_timeout=5.0,
        )
    finally:
        server.signal(signal.SIGCONT)
    assert sentence(result) == (
        "TimeoutError: the vLLM server must answer within vllm_server_request_timeout, got nothing from "
        f"{server.url} for 5 s; raise the timeout or give the server more to compute with, and resume from the last "
        "checkpoint."
    )


def test_a_server_killed_in_a_rollout_ends_the_run_which_goes_on_from_its_checkpoint(
    play: Play, played: Callable[..., Any], new_server: Any, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "vllm_mode": "server",
        "vllm_server_base_url": new_server.url,
        "learning_rate": 1e-4,
        "max_steps": 3,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    kill = {"group": new_server.process.pid, "signal": signal.SIGKILL, "step": 2}
    result = play(new_server.policy, tmp_path, signal=kill, **settings)
    last = sentence(result)
    assert last.startswith("ConnectionError: the vLLM server must stay up during training, got ")
    assert f" from {new_server.url} during a rollout; " in last

    # What was written when the server died is still what it was, and it is enough to go on from.
    written = json.loads((tmp_path / "written.json").read_text())
    assert {Path(name).parts[0] for name in written} == {"checkpoint-1", "checkpoint-2"}
    assert {name: digest(tmp_path / name) for name in written} == written
    new_server.stop()
    new_server.start()
    (update,) = played(new_server.policy, tmp_path, resume=True, **settings)
    assert update["metrics"]["sampler/logprob_difference_max"] < 1e-4
    assert (tmp_path / "checkpoint-3").is_dir()


def test_weights_cannot_reach_a_server_without_a_gpu(play: Play, server: Any, tmp_path: Path) -> None:
    result = play(server.policy, tmp_path, transport="nccl", vllm_mode="server", vllm_server_base_url=server.url)
    assert "needs a CUDA device, got 'cpu'" in sentence(result)


@pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="TRL 1.16 sends weights to a server over NCCL alone, which needs a GPU for the server and one for training",
)
def test_weights_reach_a_server_over_nccl(played: Callable[..., Any], server: Any, tmp_path: Path) -> None:
    updates = played(
        server.policy,
        tmp_path,
        transport="nccl",
        use_cpu=False,
        max_steps=3,
        vllm_mode="server",
        vllm_server_base_url=server.url,
    )
    for update in updates:
        assert update["metrics"]["sampler/logprob_difference_max"] < 1e-4
