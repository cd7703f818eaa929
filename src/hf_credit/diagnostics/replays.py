"""By how much replays could lower the cost of signal, and where, from unbranched episodes alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hf_credit.credit import replay_blocks, replay_branches, replay_ratio
from hf_credit.evaluation.statistics import Interval
from hf_credit.validators import finite_number, whole_number


@dataclass(frozen=True, kw_only=True)
class ReplayBlock:
    """Steps at which equally many branches should be alive.

    Attributes:
        first, last: the steps, counted from 1.
        branches: alive for one at the first step; infinite where no noise arises before.
        noise: the share of all noise that arises there.
        tokens: the share of all tokens that is generated there.
    """

    first: int
    last: int
    branches: float
    noise: float
    tokens: float


@dataclass(frozen=True, kw_only=True)
class ReplayGain:
    """What replays could gain at best.

    Attributes:
        ratio: rho, the cost of signal under the best branching over that without, with its interval over episodes.
        capped: the same where at most `most` branches are alive of one start.
        most: these.
        branches: at each step, how many branches go on from its state then, as `active_replay` takes them.
        blocks: where how many are alive.
    """

    ratio: Interval
    capped: float
    most: float
    branches: tuple[float, ...]
    blocks: tuple[ReplayBlock, ...]


def replay_gain(
    deltas: Sequence[Sequence[float]],
    spreads: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[float]],
    *,
    most: float = 2.0,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> ReplayGain:
    """rho of `hf_credit.credit.replay_ratio` from what single episodes showed, by step.

        b[j] = mean over episodes of delta[j]^2 sum over t <= j of |grad log pi[t]|^2,   c[j] = mean tokens of step j

    delta[j] = r[j] + V[j + 1] - V[j] is what step j changed in value. b is the variance that arises at a step where V
    is the value of the policy. A V that knows less sees the same noise arise later, so rho comes out too low, and only
    bounds what can be gained. Few episodes make it too low as well, as chance alone makes noise rise somewhere.

    Args:
        deltas: of each step of each episode, in the unit of the reward.
        spreads: |grad log pi|^2 of what was decided there, at least 0, in any one unit; for a network the sum over
            tokens of 1 - p, p the probability of the token that was drawn, whose mean is that in the logits.
        tokens: that were generated there.
        most: branches alive of one start, for `capped` and `branches`.
        confidence: of the interval, from a bootstrap over episodes.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        ValueError: there are fewer than 2 episodes, the lists differ in length, or a number is out of range.
    """
    finite_number("most", most, 1)
    whole_number("resamples", resamples, 1)
    if len(deltas) < 2 or not any(deltas):
        raise ValueError(f"a gain needs at least 2 episodes with a step, got {len(deltas)}; play more.")
    lengths = [[len(own) for own in rows] for rows in (deltas, spreads, tokens)]
    if not lengths[0] == lengths[1] == lengths[2]:
        raise ValueError(
            "deltas, spreads and tokens must have one number for each step of each episode, got other lengths; give "
            "all three for every step."
        )
    noise = _table(
        [
            [delta**2 * before for delta, before in zip(own, itertools.accumulate(spread), strict=True)]
            for own, spread in zip(deltas, spreads, strict=True)
        ]
    )
    spent = _table(tokens)
    b, c = torch.from_numpy(noise.mean(axis=0)), torch.from_numpy(spent.mean(axis=0))
    draws, count = np.random.default_rng(seed), len(noise)
    ratios = []
    for _ in range(resamples):
        drawn = np.bincount(draws.integers(count, size=count), minlength=count) / count
        ratios.append(replay_ratio(torch.from_numpy(drawn @ noise), torch.from_numpy(drawn @ spent)))
    low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    alive = replay_branches(b, c)
    held = alive.clamp(max=most)
    whole = float(b.sum() * c.sum())
    numbers = held.tolist()
    return ReplayGain(
        ratio=Interval(mean=replay_ratio(b, c), low=float(low), high=float(high), confidence=confidence, n=count),
        capped=float((b / held).sum() * (c * held).sum()) / whole if whole else 1.0,
        most=most,
        branches=tuple(after / before for before, after in itertools.pairwise([1.0, *numbers])),
        blocks=tuple(_blocks(b, c, alive)),
    )


def _blocks(b: torch.Tensor, c: torch.Tensor, alive: torch.Tensor) -> list[ReplayBlock]:
    found, first = [], 0
    for size in replay_blocks(b, c):
        last = first + size
        found.append(
            ReplayBlock(
                first=first + 1,
                last=last,
                branches=float(alive[first]),
                noise=_share(b, first, last),
                tokens=_share(c, first, last),
            )
        )
        first = last
    return found


def _share(values: torch.Tensor, first: int, last: int) -> float:
    whole = float(values.sum())
    return float(values[first:last].sum()) / whole if whole else math.nan


def _table(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Ragged rows as a matrix, 0 behind their ends."""
    table = np.zeros((len(rows), max(map(len, rows))))
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
