"""REINFORCE++: the discounted outcome from each token on, whitened over all tokens of the update."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from hf_credit.collectors import RolloutBatch, single_or_group
from hf_credit.credit import full_mean, token_returns, whitened
from hf_credit.methods.base import (
    Credit,
    Method,
    all_gather_with_slice,
    mean_by_decision,
    outcomes_of,
    paper,
    without_errors,
)
from hf_credit.options import Count, Options, Range, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models",
    arxiv="2501.03262",
)


@dataclass(frozen=True, kw_only=True)
class WhitenedReturns(Options):
    """`token_returns` of the outcomes, `whitened` over the tokens of all processes.

    Failed episodes get no credit, and their tokens count in no mean.

    Args:
        gamma: discount from one token to the next. Below 1 each token has its own credit.
        group_mean: whether the mean of the instance's outcomes is subtracted first (REINFORCE++-baseline).
        correction: 1 for the sample's variance, 0 for the population's, as OpenRLHF has it.
    """

    gamma: Share = 1.0
    group_mean: bool = False
    correction: Annotated[int, Range(0, 1)] = 1
    reads_tokens: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        """What `Method.bind` requires of a collector."""
        return frozenset({"groups"} if self.group_mean else ())

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        if self.group_mean:
            outcomes = full_mean(outcomes, groups)
        lengths = [sum(len(one.action_ids) for one in collected.episodes[row].decisions) for row in rows]
        pairs, local = all_gather_with_slice(list(zip(outcomes.tolist(), lengths, strict=True)), context)
        all_outcomes = torch.tensor([outcome for outcome, _ in pairs], dtype=torch.float64)
        all_lengths = torch.tensor([length for _, length in pairs], dtype=torch.long)
        returns = token_returns(all_outcomes, all_lengths, self.gamma)
        first = int(all_lengths[: local.start].sum())
        rest = iter(whitened(returns, correction=self.correction)[first : first + sum(lengths)].tolist())
        decisions = [decision for row in rows for decision in collected.episodes[row].decisions]
        tokens = [tuple(itertools.islice(rest, len(decision.action_ids))) for decision in decisions]
        credits = tokens if self.gamma < 1 else [next(iter(of_decision), None) for of_decision in tokens]
        return Credit(decisions=mean_by_decision(zip(decisions, credits, strict=True)))


@with_parts
def reinforce_plus_plus(group_size: Count = 1, estimator: WhitenedReturns = WhitenedReturns()) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row; with `group_mean` at least 2.

    Raises:
        ValueError: a group of one with `group_mean`, or a setting is out of range.
    """
    if estimator.group_mean and group_size < 2:
        raise ValueError(f"group_size must be at least 2 with group_mean=True, got {group_size}; raise it.")
    return Method(name="reinforce_plus_plus", collector=single_or_group(group_size), estimator=estimator, paper=PAPER)
