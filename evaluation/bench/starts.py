r"""How many decisions a reverse curriculum and the plain outcome need until half of the tasks succeed, simulated.

    python evaluation/bench/starts.py

In a chain of L steps each step has a logit, and the first wrong step ends the episode, so an episode succeeds with
V = prod_t sigmoid(theta_t). At the start all steps are alike and V = 10^-4. An update plays groups of 8 for 16 rows,
with the gradient of RLOO,

    g = mean over episodes of (R - mean of the others' R) sum_t (a_t - sigmoid(theta_t)).

The curriculum is `hf_credit.trainers.starts.Starts` as a training uses it, with walks of a player that knows the way.
Shown are medians over seeds, by the step size of plain gradient ascent; no logit changes by more than .5 in an update.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.credit import leave_one_out
from hf_credit.rollouts import Ending, Episode, Interaction, LocalContext, Request
from hf_credit.trainers.starts import Starts

LENGTHS = (16, 32)
START, GOAL = 1e-4, 0.5
ROWS, GROUP = 16, 8
STEPS = (3.0, 10.0, 30.0, 100.0)
LARGEST = 0.5  # change of a logit in an update, as in the bench
SEEDS = 5
MOST = 30_000_000  # decisions


class Chain(Interaction[int]):
    """A state is the number of right steps, or -1."""

    def __init__(self, length: int) -> None:
        self.length = length

    def start(self, task: Any, seed: int) -> int:
        return 0

    def pending(self, state: int) -> tuple[Request, ...]:
        return (Request(role="agent", messages=()),) if 0 <= state < self.length else ()

    def advance(self, state: int, replies: Sequence[str]) -> int:
        return state + 1 if replies[0] == "1" else -1

    def outcome(self, state: int) -> float:
        return float(state == self.length)

    def scripted_player(self, quality: float) -> Any:
        return lambda state, request, draws: "1"


class NoText:
    """In place of a chat: nobody reads."""

    def context(self, *_: Any) -> tuple[int, ...]:
        return ()

    def reply_ids(self, *_: Any) -> tuple[int, ...]:
        return ()


class Policy:
    """A logit for each step; a collector that plays it and keeps the score of each episode."""

    def __init__(self, length: int, seed: int) -> None:
        right = START ** (1 / length)
        self.logits = np.full(length, np.log(right / (1 - right)))
        self.draws = np.random.default_rng(seed)
        self.decisions = 0

    @property
    def right(self) -> np.ndarray:
        return 1 / (1 + np.exp(-self.logits))

    def __call__(self, rows: Sequence[Any], context: Any, memory: Any = None) -> RolloutBatch:
        begun = np.repeat(
            [context.starts[row].step if row in context.starts else 0 for row in range(len(rows))], GROUP
        )
        steps = np.arange(len(self.logits))
        made = (self.draws.random((len(begun), len(steps))) < self.right) | (steps < begun[:, None])
        reached = np.where(made.all(axis=1), len(steps), made.argmin(axis=1))
        self.outcomes = (reached == len(steps)).astype(float)
        played = (steps >= begun[:, None]) & (steps <= reached[:, None])
        self.decisions += int(played.sum())
        self.scores = played * (made - self.right)
        episodes = (Episode(decisions=(), outcome=one, ending=Ending.FINISHED) for one in self.outcomes.tolist())
        rollouts = (Rollout(episode=one, instance=place // GROUP) for place, one in enumerate(episodes))
        return RolloutBatch(rollouts=tuple(rollouts), rows=len(rows))

    def learn(self, step: float) -> None:
        groups = torch.arange(len(self.outcomes)) // GROUP
        advantages = leave_one_out(torch.tensor(self.outcomes, dtype=torch.float64), groups).numpy()
        self.logits += np.clip(step * (advantages[:, None] * self.scores).mean(axis=0), -LARGEST, LARGEST)


def needed(length: int, curriculum: bool, step: float, seed: int, most: int = MOST) -> int:
    """The decisions until the value is `GOAL`; `most` if it is not."""
    policy, context = Policy(length, seed), LocalContext(seed=seed)
    context.interaction = Chain(length)
    starts = Starts("oracle", 0.35, context.interaction, NoText())  # type: ignore[arg-type]
    while policy.right.prod() < GOAL and policy.decisions < most:
        rows = [{"task": context.update * ROWS + row} for row in range(ROWS)]
        if curriculum:
            _, news = starts.played(starts.drawn(rows, context), rows, context, policy, None)
            starts.learn([news])
        else:
            policy(rows, context)
        policy.learn(step)
        context.update += 1
    return min(policy.decisions, most)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = range(parser.parse_args().seeds)
    print("| steps | step size | plain outcome | curriculum | times |\n| --- | --- | --- | --- | --- |")
    for length in LENGTHS:
        for step in STEPS:
            plain, later = (
                statistics.median(needed(length, curriculum, step, seed) for seed in seeds)
                for curriculum in (False, True)
            )
            print(f"| {length} | {step:g} | {plain:,.0f} | {later:,.0f} | {plain / later:.1f} |", flush=True)


if __name__ == "__main__":
    main()
