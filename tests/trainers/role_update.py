"""Updates of two roles with an adapter each; writes their results. Run by tests, directly or by torchrun."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from small_runs import ON_A_PROCESSOR, let_shard
from torch.distributed.tensor import DTensor

from hf_credit import CreditConfig, CreditTrainer, ReplayLOOConfig, ReplayLOOTrainer
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Credit
from hf_credit.rollouts import Episode, by_episode
from hf_credit.trainers.callbacks import CreditCallback

ROLES = ["reasoner", "actor"]
TEMPERATURE = 5.0  # the policy of the tests plays a game; at 1 it would say much the same here every time


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages have different scores."""
    return sum(map(ord, text)) % 5 / 4


def whole(value: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor that a sharded one is part of."""
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


class KeepGradients(CreditCallback):
    def __init__(self) -> None:
        self.kept: list[dict[str, torch.Tensor]] = []
        self.played: list[tuple[list[Episode], Any]] = []
        self.after: list[dict[str, Any]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_step_end(args, state, control, **kwargs)

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Keeps the adapters, and what the optimizer remembers of them."""
        adapters = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        self.after.append(
            {
                "weights": {name.removeprefix("module."): whole(value) for name, value in adapters},
                "moments": {
                    name.removeprefix("module."): [whole(one) for one in optimizer.state[value].values()]
                    for name, value in adapters
                },
            }
        )

    def on_credit(self, trainer: Any, collected: RolloutBatch, credit: Credit) -> None:
        self.played.append((collected.episodes, by_episode(collected.episodes, credit.decisions)))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        named = model.named_parameters()
        self.kept.append({name.removeprefix("module."): whole(p.grad) for name, p in named if p.grad is not None})


def build(
    policy: Any,
    output: Path,
    peft_config: Any = None,
    interaction: Any = None,
    method: str | None = None,
    **changed: Any,
) -> Any:
    """A trainer of two instances per update; gradients in `trainer.kept`, rollouts in `trainer.played`."""
    if interaction is None:
        interaction = relay(size=4)
        interaction.scorer = uneven
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
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
    }
    keep = KeepGradients()
    # B at 0 would leave A without a gradient in the first update.
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    config, kind = (ReplayLOOConfig, ReplayLOOTrainer) if method is None else (CreditConfig, CreditTrainer)
    alike = {"equal_steps": False} if method is None else {}  # each message weighs 1 in what these tests work out
    settings = config(**{**values, **alike, **changed})
    let_shard()
    trainer: Any = kind(
        policy if not isinstance(policy, Path) else str(policy),
        interaction,
        settings,
        Dataset.from_list([relay_task(secret, shift, size=4) for secret in (1, 2) for shift in (1, 2, 3)]),
        peft_config=lora if peft_config is None else peft_config or None,
        callbacks=[keep],
        **({} if method is None else {"method": method}),
    )
    trainer.kept, trainer.played, trainer.after = keep.kept, keep.played, keep.after
    return trainer


if __name__ == "__main__":
    changed = json.loads(sys.argv[3])
    output = Path(sys.argv[2])
    trained = build(Path(sys.argv[1]), output, **changed)
    trained.train()
    rank = trained.accelerator.process_index
    trained.save_model(str(output / "saved"))
    played = [
        (decision.role, decision.context_ids, decision.action_ids, advantage)
        for episodes, advantages in trained.played
        for episode, credits in zip(episodes, advantages, strict=True)
        for decision, advantage in zip(episode.decisions, credits, strict=True)
        if advantage is not None
    ]
    held = sum(
        value.to_local().numel() if isinstance(value, DTensor) else value.numel()
        for value in trained.model.parameters()
    )
    left = {"gradient": trained.kept, "played": played, "after": trained.after, "held": held}
    torch.save(left, output / f"update_{rank}.pt")
    assert trained.accelerator.num_processes == 2
    torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end
