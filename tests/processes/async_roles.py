"""A training of two roles through a server, each with an adapter of its own, and what it learned from.

python async_roles.py POLICY OUTPUT URL [SETTINGS]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from async_update import KeepGradients
from datasets import Dataset
from peft import LoraConfig
from small_runs import ON_A_PROCESSOR, let_shard

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, methods
from hf_credit.collaborations.relay import relay, relay_task

ROLES = ["reasoner", "actor"]


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages differ in worth."""
    return sum(map(ord, text)) % 5 / 4


def build(policy: Path, output: Path, url: str, **changed: Any) -> Any:
    """A trainer, with its gradients in `kept`, and in `drawn` the collections that updates got."""
    interaction = relay(size=4)
    interaction.scorer = uneven
    adapter = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "role_adapters": ROLES,
        "max_steps": 1,
        "instances_per_update": 2,
        "gradient_accumulation_steps": 4,
        "max_completion_length": 3,
        "learning_rate": 1e-2,
        "max_grad_norm": 1e9,
        "vllm_server_base_url": url,
        "token_budget": 4096,
        "max_staleness": 2,
    }
    let_shard()
    keep = KeepGradients()
    trainer: Any = AsyncCreditTrainer(
        str(policy),
        interaction,
        AsyncCreditConfig(**{**values, **changed}),
        Dataset.from_list([relay_task(secret, shift, size=4) for secret in (1, 2) for shift in (1, 2, 3)]),
        method=methods.make("rloo", group_size=4),
        peft_config=adapter,
        callbacks=[keep],
    )
    trainer.kept, trainer.drawn = keep.kept, []
    if trainer.accelerator.is_main_process:
        get = trainer.rollout_worker.collections.get

        def drawn(*args: Any, **kwargs: Any) -> Any:
            trainer.drawn.append(get(*args, **kwargs))
            return trainer.drawn[-1]

        trainer.rollout_worker.collections.get = drawn
    return trainer


if __name__ == "__main__":
    policy, output, url, settings = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    trained = build(policy, output, url, **settings)
    trained.train()
    if trained.accelerator.is_main_process:
        rows = [[vars(row) for row in one.rows] for one in trained.drawn]
        left = {"gradient": trained.kept, "rows": rows, "log": trained.state.log_history}
        torch.save({**left, "processes": trained.accelerator.num_processes}, output / "left.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
