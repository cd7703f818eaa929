"""Updates of two roles with adapters of their own, and what they left. Run by tests, alone or by torchrun."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig

from hf_credit import CreditConfig, CreditTrainer, ReplayLOOConfig, ReplayLOOTrainer
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.collectors import Collected
from hf_credit.methods import Credit
from hf_credit.rollouts import Episode
from hf_credit.trainers.credit import CreditCallback

ROLES = ["reasoner", "actor"]
TEMPERATURE = 5.0  # the policy of the tests plays a game; at 1 it would say much the same here every time


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages differ in worth."""
    return sum(map(ord, text)) % 5 / 4


class KeepGradients(CreditCallback):
    def __init__(self) -> None:
        self.kept: list[dict[str, torch.Tensor]] = []
        self.played: list[tuple[list[Episode], Any]] = []

    def on_credit(self, trainer: Any, collected: Collected, credit: Credit) -> None:
        self.played.append((collected.episodes, credit.decisions))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        named = model.named_parameters()
        self.kept.append({name.removeprefix("module."): p.grad.clone() for name, p in named if p.grad is not None})


def build(
    policy: Any,
    output: Path,
    peft_config: Any = None,
    interaction: Any = None,
    method: str | None = None,
    **changed: Any,
) -> Any:
    """A trainer of two instances an update; gradients in `trainer.kept`, what was played in `trainer.played`."""
    if interaction is None:
        interaction = relay(size=4)
        interaction.scorer = uneven
    values: dict[str, Any] = {
        "output_dir": str(output),
        "role_adapters": ROLES,
        "instances_per_update": 2,
        "per_device_train_batch_size": 1,
        "max_steps": 1,
        "max_completion_length": 2,
        "max_context_tokens": None,
        "temperature": TEMPERATURE,
        "top_p": 1.0,
        "top_k": 0,
        "beta": 0.0,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "max_grad_norm": 1e9,
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    keep = KeepGradients()
    # B at 0 would leave A without a gradient in the first update.
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    config, kind = (ReplayLOOConfig, ReplayLOOTrainer) if method is None else (CreditConfig, CreditTrainer)
    trainer: Any = kind(
        policy if not isinstance(policy, Path) else str(policy),
        interaction,
        config(**{**values, **changed}),
        Dataset.from_list([relay_task(secret, shift, 4) for secret in (1, 2) for shift in (1, 2, 3)]),
        peft_config=lora if peft_config is None else peft_config or None,
        callbacks=[keep],
        **({} if method is None else {"method": method}),
    )
    trainer.kept, trainer.played = keep.kept, keep.played
    return trainer


if __name__ == "__main__":
    changed = json.loads(sys.argv[3])
    output = Path(sys.argv[2])
    trained = build(Path(sys.argv[1]), output, **changed)
    trained.train()
    rank = trained.accelerator.process_index
    played = [
        (decision.role, decision.context_ids, decision.action_ids, advantage)
        for episodes, advantages in trained.played
        for episode, credits in zip(episodes, advantages, strict=True)
        for decision, advantage in zip(episode.decisions, credits, strict=True)
        if advantage is not None
    ]
    torch.save({"gradient": trained.kept, "played": played}, output / f"update_{rank}.pt")
    assert trained.accelerator.num_processes == 2
    torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end
