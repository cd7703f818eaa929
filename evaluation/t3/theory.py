"""How far the bounds on belief traps are from what happens (paper T3, Propositions 1 and 2), on random POMDPs.

python evaluation/t3/theory.py        # seconds of a processor; writes results/theory.md
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from belief_traps import (
    Channel,
    Vector,
    drift_constant,
    entry_time_bound,
    posterior,
    potential,
    random_channel,
    shares_that_leave,
    trap_threshold,
    trapped_update,
)

from hf_credit.evaluation.report import table

GROWTH, OFFSET = 2.0, 0.5  # m and c_0 of Assumption 5
STATES = 2000  # where the agent begins far below U though the proposition says something
Paths = list[tuple[float, Vector, Vector]]
"""Probability, the agent's belief and the oracle's."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results", help="a folder")
    parser.add_argument("--worlds", type=int, default=200, help="random POMDPs of each line")
    options = parser.parse_args(arguments)
    (options.results / "theory.md").write_text(markdown(options.worlds), encoding="utf-8")


def markdown(worlds: int) -> str:
    """All tables, over so many random POMDPs."""
    return "\n".join(
        [
            "# Bounds on belief traps",
            "",
            "Written by `evaluation/t3/theory.py`; do not edit. Expectations are exact, by enumeration of answers, in "
            f"{worlds} random POMDPs a line, in the last table {worlds // 10}; the share of paths that leave is "
            "drawn.",
            "",
            "## From where there is no progress on average (Proposition 1)",
            "",
            "Four states, three actions and answers, m = 2, c_0 = 0.5. U is the paper's threshold; beside it the "
            "highest potential at which the agent still made progress on average, mean and most over the worlds, to "
            "0.01.",
            "",
            table(["eta", "U", "last progress, mean", "last progress, most"], _thresholds(worlds)),
            "",
            "## Who leaves a trap",
            "",
            "Share of 500 paths that begin at U (eta = 0.1) and are below it within four steps, by what an update "
            "adds to or takes off the potential, each with probability 1/2: the mean is the same.",
            "",
            table(["noise, nats", "leave"], _leaving()),
            "",
            "## When the trap is entered (Proposition 2)",
            "",
            f"{STATES} states, two actions and answers, c_0 = 0, and m = B / Psi_0 + 0.1: with B / Psi_0 there is no "
            "bound. Steps count from 1.",
            "",
            table(["eta", "expected potential at U by step", "bound", "paths at U by that step"], _entries(worlds)),
            "",
        ]
    )


def drift(belief: Vector, channel: Channel, truth: int) -> float:
    """The expected change of the potential of an agent that asks uniformly."""
    before = potential(belief, truth)
    after = [
        share * potential(trapped_update(known, truth, before, GROWTH, OFFSET), truth)
        for share, known in _answers(belief, channel, truth)
    ]
    return sum(after) - before


def _answers(belief: Vector, channel: Channel, truth: int) -> Iterator[tuple[float, Vector]]:
    """Each action and answer: how likely it is, and what Bayes' rule makes of the belief."""
    for action, answer in itertools.product(range(len(channel)), range(channel.shape[2])):
        yield channel[action, truth, answer] / len(channel), posterior(belief, channel, action, answer)


def _thresholds(worlds: int) -> list[list[str]]:
    rows = []
    for least in (0.05, 0.1, 0.2, 0.3):
        threshold = trap_threshold(math.log(4), least, 0.0, GROWTH, OFFSET)
        grid = [*np.arange(1, 100) / 100, *np.linspace(1, threshold, 50)]
        found = []
        for seed in range(worlds):
            draws = np.random.default_rng(seed)
            channel, truth = random_channel(4, 3, 3, least, draws), int(draws.integers(4))
            others = draws.dirichlet(np.ones(4))
            others[truth] = 0
            progress = [at for at in grid if drift(_at(others, truth, at), channel, truth) < 0]
            found.append(max(progress, default=0.0))
        rows.append([f"{least}", f"{threshold:.2f}", f"{fmean(found):.2f}", f"{max(found):.2f}"])
    return rows


def _at(others: Vector, truth: int, at: float) -> Vector:
    """The belief of a potential whose other states have these shares."""
    belief = others * (1 - math.exp(-at)) / others.sum()
    belief[truth] = math.exp(-at)
    return np.asarray(belief)


def _leaving() -> list[list[str]]:
    draws = np.random.default_rng(5)
    channel, truth = random_channel(4, 3, 3, 0.1, draws), int(draws.integers(4))
    threshold = trap_threshold(math.log(4), 0.1, 0.0, GROWTH, OFFSET)
    first = _at(np.array([float(state != truth) for state in range(4)]), truth, threshold)
    shares = {
        noise: shares_that_leave(channel, first, truth, threshold, GROWTH, OFFSET, noise, 4, 500, draws)
        for noise in (0.0, 20.0, 25.0, 60.0)
    }
    return [[f"{noise:.0f}", f"{share:.2f}"] for noise, share in shares.items()]


def _entries(worlds: int) -> list[list[str]]:
    rows = []
    for least in (0.4, 0.45, 0.49):
        told = [_entry(np.random.default_rng(seed), least) for seed in range(worlds // 10)]
        steps, bounds, shares = zip(*told, strict=True)
        rows.append([f"{least}", *(_range(own) for own in (steps, bounds)), f"{fmean(shares):.2f}"])
    return rows


def _range(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if min(values) < max(values) else f"{values[0]}"


def _entry(draws: np.random.Generator, least: float) -> tuple[int, int, float]:
    """When the expected potential is at U, the bound on that, and the share of paths at U by then."""
    states, truth = STATES, 0
    channel, first, constant = random_channel(states, 2, 2, least, draws), math.log(states), drift_constant(least, 0.0)
    growth = constant / first + 0.1  # with less, the margin is below 0 and there is no bound
    threshold = trap_threshold(first, least, 0.0, growth, 0.0)
    even = np.full(states, 1 / states)
    paths: Paths = [(1.0, even, even)]
    step, lowest = 1, first
    while sum(share * potential(agent, truth) for share, agent, _ in paths) < threshold:
        lowest = min(lowest, *(potential(oracle, truth) for _, _, oracle in paths))
        paths = [
            (share * likely, trapped_update(known, truth, potential(agent, truth), growth, 0.0), told)
            for share, agent, oracle in paths
            for (likely, known), (_, told) in zip(
                _answers(agent, channel, truth), _answers(oracle, channel, truth), strict=True
            )
        ]
        step += 1
    there = sum(share for share, agent, _ in paths if potential(agent, truth) >= threshold)
    return step, entry_time_bound(threshold, growth, margin=growth * lowest - constant), float(there)


if __name__ == "__main__":
    main()
