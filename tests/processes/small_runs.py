"""Settings of the small trainings that tests run; scripts that tests start import them too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType

RECIPE: Mapping[str, Any] = {
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "save_strategy": "no",
    "logging_steps": 1,
}
"""Without a GPU, each update logged, nothing saved."""
ON_A_PROCESSOR: Mapping[str, Any] = {**RECIPE, "report_to": "none", "disable_tqdm": True}
"""The same, and nothing shown."""
SAMPLED: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
"""Replies are drawn from the policy as it is."""
SHARDED: Mapping[str, str] = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}
"""The environment of processes that shard by FSDP2."""


SUDOKU: Mapping[str, Any] = {
    **ON_A_PROCESSOR,
    "history": "current",
    "instructions": False,
    "instances_per_update": 8,
    "per_device_train_batch_size": 8,
    "max_completion_length": 12,
    "learning_rate": 1e-3,
}
"""Of 4x4 Sudoku, as `micro_policy` plays it."""
OF_OTHERS: Mapping[str, Any] = {**ON_A_PROCESSOR, **SAMPLED, "max_completion_length": 12, "learning_rate": 1e-3}
"""Of the worlds of others."""
TWO_UPDATES: Mapping[str, Any] = {"max_steps": 2, "beta": 0.0, "warmup_steps": 0}
REPLAYED: Mapping[str, Any] = {
    "instances_per_update": 2,
    "per_device_train_batch_size": 2,
    "reference_rollouts": 1,
    "contexts": 2,
    "alternatives": [2],
    "num_replays": 2,
}
"""Of ReplayLOO, where a whole update replays a few decisions."""


def trained_without_errors(trainer: Any) -> list[dict[str, Any]]:
    """Trains on a world of others; the logs of the two updates, in which nothing failed and no replay diverged."""
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "endings/error" in entry]
    assert [entry["endings/error"] for entry in logged] == [0.0, 0.0]
    assert [entry["world/diverged"] for entry in logged] == [0.0, 0.0]
    return logged


def let_shard() -> None:
    """Lets FSDP2 shard on CPUs, where it can; accelerate turns it on only where the processes have GPUs."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        PartialState().distributed_type = DistributedType.MULTI_GPU
