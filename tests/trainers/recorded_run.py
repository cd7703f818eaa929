"""One update with a method that records metrics; each process writes its logs. Run by tests through torchrun."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from small_runs import ON_A_PROCESSOR, SAMPLED

from hf_credit import CreditConfig, CreditTrainer
from hf_credit.collaborations.relay import relay
from hf_credit.collectors import RolloutBatch, Single
from hf_credit.methods import Credit, Method
from hf_credit.rollouts import MethodContext


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Credits every decision alike, and records what depends on the process."""

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Any) -> Credit:
        second = context.process == 1
        if second:
            context.mean("recorded/by_one", [1.0, 2.0, 6.0])
            context.total("recorded/total_of_one", 5.0)
        context.mean("recorded/by_both", [8.0, 8.0, 8.0] if second else [0.0])
        context.mean("recorded/by_none", [])
        context.total("recorded/total", 10.0 if second else 2.0)
        context.total("recorded/total", 0.5)
        return Credit(decisions={one.id: 1.0 for episode in collected.episodes for one in episode.decisions})


if __name__ == "__main__":
    policy, output = Path(sys.argv[1]), Path(sys.argv[2])
    args = CreditConfig(
        **ON_A_PROCESSOR,
        **SAMPLED,
        output_dir=str(output),
        ddp_backend="gloo",
        instances_per_update=2,
        per_device_train_batch_size=1,
        max_steps=2,
        max_completion_length=3,
    )
    method = Method(name="recording", collector=Single(), estimator=Recording())
    trainer: Any = CreditTrainer(str(policy), relay(size=4), args, relay(4).tasks("train", 4), method=method)
    trainer.train()
    logged = [
        {name: value for name, value in entry.items() if name.startswith("recorded/")}
        for entry in trainer.state.log_history
        if "reward" in entry
    ]
    report = {"processes": trainer.accelerator.num_processes, "logged": logged}
    (output / f"process_{trainer.accelerator.process_index}.json").write_text(json.dumps(report), encoding="utf-8")
    torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end
