"""A training through a server, which goes on from its latest checkpoint and writes down what it learned from.

python async_run.py POLICY OUTPUT URL STEPS [SETTINGS]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from small_runs import ON_A_PROCESSOR
from transformers import AutoTokenizer, TrainerCallback

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, make, methods
from hf_credit.rollouts import Chat, EnvironmentInteraction, by_episode
from hf_credit.trainers.callbacks import CreditCallback, EpisodeCallback

TASKS, GROUP = 2, 2  # of a collection, and episodes of a task


class WritesDown(TrainerCallback):
    """Adds a line for each update: its step, its collection, and the prompts of the rows that it learned from."""

    def __init__(self, trainer: Any, path: Path) -> None:
        self.trainer, self.path = trainer, path
        self.drawn: Any = None
        draw = trainer.updates._drawn

        def drawn() -> Any:
            found = draw()
            self.drawn = found[0]
            return found

        trainer.updates._drawn = drawn

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        one = self.drawn
        line = {"step": state.global_step, "number": one.number, "prompts": [row.prompt_ids for row in one.rows]}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


class Shown(CreditCallback, EpisodeCallback):
    """Adds a line for each call of a process: its kind, the update, and the prompts of what got credit."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
        self._write(trainer, "credit", collected, by_episode(collected.episodes, credit.decisions))

    def on_episodes(self, trainer: Any, collected: Any, advantages: Any) -> None:
        self._write(trainer, "episodes" if trainer.model.training else "evaluation", collected, advantages)

    def _write(self, trainer: Any, kind: str, collected: Any, credit: Any) -> None:
        everyone = trainer.ranks.gather([len(collected.episodes)])
        prompts = [
            decision.context_ids
            for episode, own in zip(collected.episodes, credit, strict=True)
            for decision, value in zip(episode.decisions, own, strict=True)
            if value is not None
        ]
        line = {"kind": kind, "step": trainer.state.global_step + 1, "episodes": everyone, "prompts": prompts}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class StopsAt(TrainerCallback):
    """Ends a training after an update, once its checkpoint is written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


def game() -> EnvironmentInteraction:
    return EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)


def prompts_of(policy: Path, tasks: int) -> dict[tuple[int, ...], int]:
    """The first prompt of each task."""
    interaction, chat = game(), Chat(AutoTokenizer.from_pretrained(policy))
    states = [interaction.start({"seed": seed}, seed) for seed in range(tasks)]
    found = {chat.context(interaction.pending(state)[0].messages): seed for seed, state in enumerate(states)}
    assert len(found) == tasks
    return found


def main() -> None:
    policy, output, url, steps = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    settings = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    method = methods.make(settings.pop("method", "grpo"), group_size=GROUP)
    rank, shown = settings.pop("lora_r", 0), settings.pop("shown", False)
    stops = StopsAt(settings.pop("stop_at", steps))
    adapter = LoraConfig(r=rank, target_modules=["q_proj", "v_proj"], init_lora_weights=False) if rank else None
    args = AsyncCreditConfig(
        **{
            **ON_A_PROCESSOR,
            "output_dir": str(output),
            "max_steps": steps,
            "save_strategy": "steps",
            "save_steps": 1,
            "save_total_limit": 2,
            "instances_per_update": TASKS,
            "max_completion_length": 12,
            "learning_rate": 1e-3,
            "vllm_server_base_url": url,
            "weight_transfer": "folder",
            "token_budget": 4096,
            "max_staleness": 100,
            **settings,
        }
    )
    tasks = Dataset.from_list([{"seed": seed} for seed in range(TASKS * (steps + 20))])
    held_out = Dataset.from_list([{"seed": 10**6}])
    trainer = AsyncCreditTrainer(
        policy, game(), args, tasks, method=method, eval_dataset=held_out, peft_config=adapter
    )
    if trainer.accelerator.is_main_process:
        trainer.add_callback(WritesDown(trainer, output / "learned.jsonl"))
    trainer.add_callback(stops)
    if shown:
        trainer.add_callback(Shown(output / f"shown-{args.process_index}.jsonl"))
    print("begins", flush=True)
    trainer.train(resume_from_checkpoint=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # threads of its own would abort the interpreter's end


if __name__ == "__main__":
    main()
