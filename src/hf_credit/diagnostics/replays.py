"""Estimates how much replays could lower the cost of signal, and where to branch, from episodes without branches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from hf_credit.credit import replay_blocks, replay_branches, replay_ratio
from hf_credit.evaluation.statistics import Interval, clustered_interval
from hf_credit.validators import finite_number


@dataclass(frozen=True, kw_only=True)
class ReplayBlock:
    """Consecutive steps with the same optimal number of live branches.

    Attributes:
        first, last: the steps, counted from 1.
        branches: live branches, relative to the first step; infinite if no noise arises before.
        noise: the share of the noise that arises in these steps.
        tokens: the share of the tokens that are generated in these steps.
    """

    first: int
    last: int
    branches: float
    noise: float
    tokens: float


@dataclass(frozen=True, kw_only=True)
class ReplayGain:
    """The maximum gain of replays.

    Attributes:
        ratio: rho, the cost of signal with the best branching divided by that without; its interval is over episodes.
        capped: rho with at most `most` live branches per start.
        most: this maximum.
        branches: for each step, the number of branches per state then, as an option of `active_replay`.
        blocks: the optimal number of live branches, by step.
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
    """Estimates rho of `hf_credit.credit.replay_ratio` from episodes without branches.

        b[j] = mean over episodes of delta[j]^2 sum over t <= j of |grad log pi[t]|^2,   c[j] = mean tokens of step j

    delta[j] = r[j] + V[j + 1] - V[j] is the change of value by step j. If V is the value of the policy, b[j] is the
    variance that arises at step j. With a V that explains less, noise seems to arise later, so rho is too low and only
    a lower bound. With few episodes rho is too low as well.

    Args:
        deltas: delta of each step of each episode, in the unit of the reward.
        spreads: |grad log pi|^2 of each step, at least 0, in any fixed unit. For a network, the sum over tokens of
            1 - p, with p the probability of the sampled token, has the same mean as in the logits.
        tokens: the number of generated tokens of each step.
        most: the maximum number of live branches per start, for `capped` and `branches`.
        confidence: the level of the interval, which is from a bootstrap over episodes.
        resamples: the number of resamples of the bootstrap.

    Raises:
        ValueError: there are fewer than 2 episodes, the lists differ in length, or a number is out of range.
    """
    finite_number("most", most, 1)
    if len(deltas) < 2 or not any(deltas):
        raise ValueError(f"a gain needs at least 2 episodes with a step, got {len(deltas)}; play more.")
    lengths = [[len(own) for own in rows] for rows in (deltas, spreads, tokens)]
    if not lengths[0] == lengths[1] == lengths[2]:
        raise ValueError(
            "deltas, spreads and tokens must have one number per step of each episode, got different lengths; pass "
            "all three for every step."
        )
    noise = _table(
        [delta**2 * before for delta, before in zip(own, itertools.accumulate(spread), strict=True)]
        for own, spread in zip(deltas, spreads, strict=True)
    )
    spent = _table(tokens)
    b, c = noise.mean(dim=0), spent.mean(dim=0)
    episodes = list(torch.stack([noise, spent], dim=1)[:, None].numpy())

    def ratios(rows: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        means = torch.from_numpy(np.tensordot(counts, rows, axes=1) / len(rows))
        return np.array([replay_ratio(*own) for own in means])

    alive = replay_branches(b, c)
    held = alive.clamp(max=most)
    whole = float(b.sum() * c.sum())
    return ReplayGain(
        ratio=clustered_interval(episodes, ratios, confidence, resamples, seed),
        capped=float((b / held).sum() * (c * held).sum()) / whole if whole else 1.0,
        most=most,
        branches=tuple(after / before for before, after in itertools.pairwise([1.0, *held.tolist()])),
        blocks=tuple(_blocks(b, c, alive)),
    )


def _blocks(b: torch.Tensor, c: torch.Tensor, alive: torch.Tensor) -> list[ReplayBlock]:
    def share(values: torch.Tensor, first: int, last: int) -> float:
        return float(values[first:last].sum() / values.sum())

    return [
        ReplayBlock(
            first=first + 1,
            last=last,
            branches=float(alive[first]),
            noise=share(b, first, last),
            tokens=share(c, first, last),
        )
        for first, last in itertools.pairwise(itertools.accumulate(replay_blocks(b, c), initial=0))
    ]


def _table(rows: Iterable[Sequence[float]]) -> torch.Tensor:
    """Returns ragged rows as a matrix, padded with 0."""
    return pad_sequence([torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True)
