"""Two updates of CVT-RL; each process writes its results. Run by tests through torchrun."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from small_runs import ON_A_PROCESSOR

from hf_credit import ConstrainedCounterfactualConfig, ConstrainedCounterfactualTrainer, make
from hf_credit.methods.memory import to_plain
from hf_credit.rollouts import EnvironmentInteraction


def settings(output: Path, **changed: Any) -> ConstrainedCounterfactualConfig:
    """Two updates of two steps, small in everything."""
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "group_size": 3,
        "steps": 2.0,
        "branches": 1,
        "refresh_every": 4,
        "trust_region_top": 32,
        "trust_region_wide": 32,
        "instances_per_update": 2,
        "per_device_train_batch_size": 2,
        "rows_per_forward": 32,
        "max_steps": 4,
        "max_completion_length": 10,
        "max_context_tokens": 512,
        "temperature": 1.0,
        "top_p": 1.0,
        "learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
    }
    return ConstrainedCounterfactualConfig(**{**values, **changed})


def played() -> EnvironmentInteraction[Any]:
    """The world."""
    return EnvironmentInteraction(make("evidence"), history="current", instructions=False)


def digest(tensors: Any) -> str:
    """One of all numbers."""
    sums = hashlib.sha256()
    for value in tensors:
        sums.update(value.detach().cpu().numpy().tobytes())
    return sums.hexdigest()


if __name__ == "__main__":
    policy, output = Path(sys.argv[1]), Path(sys.argv[2])
    world = played()
    args = settings(output, per_device_train_batch_size=1, ddp_backend="gloo")
    trainer: Any = ConstrainedCounterfactualTrainer(str(policy), world, args, world.tasks("train", 16))
    trainer.train()
    critics = [getattr(one, "critic", one) for _, one in sorted(trainer.critics.items())]
    values = {
        "weights": digest(trainer.accelerator.unwrap_model(trainer.model).parameters()),
        "frozen": digest(trainer.frozen.weights.values()),
        "critics": [
            digest(getattr(one, "critic", one).head.parameters()) for _, one in sorted(trainer.critics.items())
        ],
        "memory": to_plain(trainer.memory),
        "tokens": trainer.ledger.tokens,
        "log": [{name: value for name, value in one.items() if "/" in name} for one in trainer.state.log_history],
    }
    (output / f"process_{trainer.accelerator.process_index}.json").write_text(json.dumps(values), encoding="utf-8")
    torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end
