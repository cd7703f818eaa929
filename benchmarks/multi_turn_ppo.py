"""Multi-turn PPO: what its critic adds to a training step, compared with TRL's GRPO on the same rows.

Both trainers get the same episodes of several turns, the same model and nothing to generate, as in `memory.py`. Of
PPO's step every moment belongs to one column: forward and backward of the policy; its optimizer; those of the critic,
which reads every row once for its values and once to learn; and the rest, the trainer's own time: advantages, layout,
metrics, callbacks. A critic of the policy's size may cost its own passes and nothing else.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import argparse
import copy
from statistics import median
from typing import Any

from common import arguments, policy_passes, report_of_one_thread, take_turns, timed_updates
from datasets import Dataset
from memory import recorded_episodes, trl_trainer
from players import settings

from hf_credit import CreditConfig, CreditTrainer, make
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts import EnvironmentInteraction, Episode

TEXT = (
    "A training step on the same rows of several turns, medians over steps, CPU seconds of one thread. The aim is "
    "an own time under 5 %: what is neither the policy's nor the critic's passes."
)
POLICY = ("forward", "backward", "optimizer")
CRITIC = ("critic forward", "critic backward", "critic optimizer")


def ppo_trainer(episodes: list[Episode], model: Any, tokenizer: Any, common: dict[str, Any]) -> Any:
    """This library's PPO, which collects the recorded episodes."""

    class Recorded(CreditTrainer):
        def collect(self, rows: list[dict[str, Any]]) -> RolloutBatch:
            rollouts = (Rollout(episode=episode, instance=place) for place, episode in enumerate(episodes))
            return RolloutBatch(rollouts=tuple(rollouts), rows=len(episodes))

    args = CreditConfig(
        **{
            **common,
            "beta": 0.0,
            "instances_per_update": len(episodes),
            "per_device_train_batch_size": len(episodes),
            "rows_per_forward": common["per_device_train_batch_size"],
            "critic_learning_rate": 1e-9,
        }
    )
    game = EnvironmentInteraction(make("sudoku", size=4), history="append", instructions=False)
    tasks = Dataset.from_list([{"seed": seed} for seed in range(len(episodes))])
    return Recorded(model, game, args, tasks, method="ppo", processing_class=tokenizer, critic=copy.deepcopy(model))


def times(trainer: Any) -> list[dict[str, float]]:
    """The seconds of each step of a run, by label."""
    labelled = policy_passes(trainer)
    for critic in getattr(trainer, "critics", {}).values():
        labelled += [
            (critic, "_forward", "critic forward"),
            (critic, "_one_step", "critic backward"),
            (critic.weights, "step", "critic optimizer"),
        ]
    return timed_updates(trainer, labelled)


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    tokenizer = build_tokenizer(make("sudoku", size=4))
    model = build_model(tokenizer, MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=4))
    episodes = recorded_episodes(options.episodes, options.turns, len(tokenizer))
    common = settings(options.rows_at_once, max_steps=options.steps + 1, max_completion_length=16, logging_steps=1)

    def run(build: Any) -> list[dict[str, float]]:
        return times(build(episodes, copy.deepcopy(model), tokenizer, common))

    builders = {"TRL GRPO": trl_trainer, "hf-credit PPO": ppo_trainer}
    found = take_turns({name: lambda build=build: run(build) for name, build in builders.items()}, options.repeats)
    return [_line(name, [step for steps in runs for step in steps]) for name, runs in found.items()]


def _line(name: str, steps: list[dict[str, float]]) -> dict[str, Any]:
    middle = {label: median(step.get(label, 0.0) for step in steps) for label in (*POLICY, *CRITIC, "rest")}
    share = median(step["rest"] / sum(step.values()) for step in steps)
    return {"trainer": name, "step, s": median(sum(step.values()) for step in steps), **middle, "own": f"{share:.1%}"}


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, episodes=8, turns=4, rows_at_once=8, hidden_size=128, layers=2, steps=3, repeats=2)
    report_of_one_thread(parser, arguments_given, "multi_turn_ppo", compare, TEXT)


if __name__ == "__main__":
    main()
