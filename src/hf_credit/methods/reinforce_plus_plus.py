"""REINFORCE++: the discounted outcome from each token on, whitened over all tokens of the update."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch

from hf_credit.collectors import Collector, Group, RolloutBatch, Single
from hf_credit.credit import full_mean, token_returns, whitened
from hf_credit.methods.base import (
    Credit,
    DecisionCredit,
    Method,
    all_gather_with_slice,
    mean_over_shared,
    outcomes_of,
    paper,
    without_errors,
)
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models",
    arxiv="2501.03262",
)


@dataclass(frozen=True, kw_only=True)
class WhitenedReturns:
    """`token_returns` of the outcomes, `whitened` over the tokens of all processes.

    Episodes that failed get no credit, and their tokens count in no mean.

    Args:
        gamma: discount from one token to the next, in [0, 1]. Below 1 each token has credit of its own.
        group_mean: whether the mean of the instance's outcomes is taken off first (REINFORCE++-baseline).
        correction: 1 for the sample's variance, 0 for the population's, as OpenRLHF has it.
    """

    gamma: float = 1.0
    group_mean: bool = False
    correction: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {self.gamma}; 1 is usual.")
        if self.correction not in (0, 1):
            raise ValueError(f"correction must be 0 or 1, got {self.correction}; 1 is the sample's variance.")

    @property
    def needs(self) -> frozenset[str]:
        """What `Method.bind` asks of a collector."""
        return frozenset({"groups"} if self.group_mean else ())

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        if self.group_mean:
            outcomes = full_mean(outcomes, groups)
        lengths = [sum(len(one.action_ids) for one in collected.episodes[row].decisions) for row in rows]
        told, own = all_gather_with_slice(list(zip(outcomes.tolist(), lengths, strict=True)), context)
        everyone = torch.tensor([length for _, length in told], dtype=torch.long)
        returns = token_returns(torch.tensor([value for value, _ in told], dtype=torch.float64), everyone, self.gamma)
        first = int(everyone[: own.start].sum())
        values = whitened(returns, correction=self.correction)[first : first + sum(lengths)].tolist()
        given: list[list[DecisionCredit]] = [[None] * len(episode.decisions) for episode in collected.episodes]
        for row, start in zip(rows, accumulate(lengths, initial=0), strict=False):
            for number, decision in enumerate(collected.episodes[row].decisions):
                tokens = tuple(values[start : start + len(decision.action_ids)])
                given[row][number] = tokens if self.gamma < 1 else next(iter(tokens), None)
                start += len(tokens)
        return Credit(decisions=mean_over_shared(collected, given))


def reinforce_plus_plus(
    group_size: int = 1, gamma: float = 1.0, group_mean: bool = False, correction: int = 1
) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row; with `group_mean` at least 2.
        gamma, group_mean, correction: as in `WhitenedReturns`.

    Raises:
        ValueError: a group of one with `group_mean`, or a setting is out of range.
    """
    if group_mean and group_size < 2:
        raise ValueError(f"group_size must be at least 2 with group_mean=True, got {group_size}; raise it.")
    collector: Collector = Single() if group_size == 1 else Group(size=group_size)
    estimator = WhitenedReturns(gamma=gamma, group_mean=group_mean, correction=correction)
    return Method(name="reinforce_plus_plus", collector=collector, estimator=estimator, paper=PAPER)
