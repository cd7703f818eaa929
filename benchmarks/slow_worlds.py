"""Slow worlds: how long many episodes take whose steps wait, compared with the longest of them alone.

Each episode is a walk of 1 to 16 steps, and each step of its world sleeps for 0.05 s, as a web shop or a simulator in
another process lets one wait. Nothing is generated: replies are constant, so that what is timed is waiting and the
engine's own work. `serial` takes the steps one after the other, as an environment does that says nothing of waiting.

The bound is the longest chain: its steps times the wait. Seconds are those of a clock on the wall, and next to them
those that this process spent on a processor: what is in neither was spent waiting for other processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from common import arguments, cpu_seconds, report, take_turns

from hf_credit.environments.actions import tag
from hf_credit.environments.replayed import ReplayedEnvironment
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, RolloutRequest

WAIT = 0.05
LONGEST = 16


class Queue:
    """A world whose every step waits."""

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        self.left = task["steps"]
        return "Wait."

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        time.sleep(WAIT)
        self.left -= 1
        return "Wait.", float(not self.left), not self.left, {}

    def close(self) -> None:
        pass


class Queues(ReplayedEnvironment):
    name = "queues"
    task_columns = ("steps",)
    instructions = f"Say {tag('next')}."
    max_turns = LONGEST

    def sample_task(self, seed: int) -> dict[str, Any]:
        return {"steps": 1 + seed % LONGEST}

    def open_world(self) -> Queue:
        return Queue()


def run(chat: Chat, episodes: int, side_by_side: bool) -> dict[str, Any]:
    """One run: its seconds and those of the longest chain."""
    environment = Queues(episodes)
    if not side_by_side:
        environment.slow_steps = 1
    reply = Generation(ids=[*chat.encode(tag("next")), chat.tokenizer.eos_token_id])

    def generate(contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        return [reply] * len(contexts)

    starts = [RolloutRequest(task=environment.sample_task(seed), seed=seed) for seed in range(episodes)]
    begun, worked = time.perf_counter(), cpu_seconds()
    played = Engine(EnvironmentInteraction(environment), chat, generate).run(starts)
    seconds, working = time.perf_counter() - begun, cpu_seconds() - worked
    steps = [len(episode.decisions) for episode in played]
    environment.close()
    return {"seconds": seconds, "working": working, "steps": sum(steps), "longest": max(steps)}


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    chat = Chat(tokenizer_of([f"Wait. Say {tag('next')}."]))
    cases = {
        "serial": lambda: run(chat, options.episodes, side_by_side=False),
        "side by side": lambda: run(chat, options.episodes, side_by_side=True),
    }
    table = []
    for name, runs in take_turns(cases, options.repeats).items():
        seconds, chain = median(one["seconds"] for one in runs), runs[0]["longest"] * WAIT
        table.append(
            {
                "steps are taken": name,
                "episodes": options.episodes,
                "steps": runs[0]["steps"],
                "seconds": seconds,
                "of them on a processor": median(one["working"] for one in runs),
                "longest chain": chain,
                "times the longest chain": seconds / chain,
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    options = arguments(__doc__ or "", episodes=64, repeats=5).parse_args(arguments_given)
    rows = compare(options)
    text = (
        f"{options.episodes} episodes of 1 to {LONGEST} steps, each of which waits {WAIT} s; replies are constant. "
        "Seconds on the clock, other work on the machine included: medians over repeats in turns."
    )
    report(options, "slow_worlds", text, rows)


if __name__ == "__main__":
    main()
