"""Several processes give the gradient and the metrics of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file

SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}


@pytest.mark.parametrize("environment", [{}, SHARDED], ids=["replicated", "sharded by FSDP2"])
def test_two_processes_give_the_gradient_and_the_metrics_of_one(
    one_update: Callable[..., Any],
    one_update_script: Path,
    micro_policy: Path,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    output = tmp_path / "two"
    output.mkdir()
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(one_update_script)]
    finished = subprocess.run(
        [sys.executable, *command, str(micro_policy), str(output), json.dumps({"per_device_train_batch_size": 2})],
        env={**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    two = torch.load(output / "update.pt")
    assert two["processes"] == 2

    one = one_update(micro_policy)
    gradient, metrics = one.kept[0], one.state.log_history[0]
    assert two["gradient"].keys() == gradient.keys()
    assert max(value.abs().max() for value in gradient.values()) > 1e-4
    for name, value in gradient.items():
        torch.testing.assert_close(two["gradient"][name], value, rtol=1e-3, atol=1e-6)
    timed = {name for name in metrics if "time" in name or "seconds" in name or "per_second" in name}
    # TRL's own metrics are means over slices, and two processes cut other slices.
    by_slice = {name for name in metrics if name == "entropy" or name.startswith("clip_ratio")}
    compared = metrics.keys() - timed - by_slice
    assert {"reward", "success", "completion", "oracle/valid", "tokens/generated", "loss", "grad_norm"} <= compared
    for name in compared:
        assert two["metrics"][name] == pytest.approx(metrics[name], rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize("name", ["multi_gpu", "fsdp2", "deepspeed_zero3", "multi_node"])
def test_accelerate_reads_every_config_we_ship(root: Path, name: str) -> None:
    config = load_config_from_file(str(root / "trainers" / "accelerate" / f"{name}.yaml"))
    assert config.num_processes == 8 * config.num_machines
    assert config.mixed_precision == "bf16"
