"""A long training of a program, which goes on from its latest checkpoint and writes down what its processes take.

python long_run.py SEAM POLICY OUTPUT STEPS URL
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
from datasets import Dataset
from small_agents import ROWS, settings
from small_runs import ON_A_PROCESSOR
from transformers import TrainerCallback

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, CreditConfig, CreditTrainer, collaborations, methods

EVERY = 50
MEASURED = 5


def mib_of(process: psutil.Process) -> float:
    """The memory that a process takes, in MiB; none if it has just ended, as each program's does."""
    try:
        return process.memory_info().rss / 2**20
    except psutil.NoSuchProcess:
        return 0.0


class Measures(TrainerCallback):
    """Adds a line every few updates: the update, and the MiB that this process and those below it take."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % MEASURED == 0:
            own = psutil.Process()
            taken = [mib_of(one) for one in (own, *own.children(recursive=True))]
            with self.path.open("a") as file:
                file.write(json.dumps({"step": state.global_step, "pid": own.pid, "taken": taken}) + "\n")


def main() -> None:
    seam, policy, output, steps, url = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    own: dict[str, Any] = {
        **ON_A_PROCESSOR,
        **settings(output, max_steps=steps),
        "save_strategy": "steps",
        "save_steps": EVERY,
        "save_total_limit": 2,
        "eval_strategy": "steps",
        "eval_steps": 2 * EVERY,
        "log_episodes": 2,
    }
    interaction: Any = collaborations.make("agent", agent="agent_shop:shop")
    given: dict[str, Any] = {
        "method": methods.make("grpo", group_size=2),
        "train_dataset": Dataset.from_list(ROWS * (steps + 100)),
        "eval_dataset": Dataset.from_list(ROWS),
    }
    if seam == "asynchronous":
        served = {"vllm_server_base_url": url, "weight_transfer": "folder", "token_budget": 4096, "max_staleness": 4}
        trainer: Any = AsyncCreditTrainer(policy, interaction, AsyncCreditConfig(**own, **served), **given)
    else:
        trainer = CreditTrainer(policy, interaction, CreditConfig(**own), **given)
    trainer.add_callback(Measures(output / "memory.jsonl"))
    print("begins", flush=True)
    trainer.train(resume_from_checkpoint=True)
    interaction.close()


if __name__ == "__main__":
    main()
