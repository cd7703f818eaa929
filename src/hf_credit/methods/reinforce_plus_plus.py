"""REINFORCE++: the discounted return of each token, whitened over all tokens of the update.

A[t] = (G[t] - mean G) / std G,    G[t] = gamma^(T - 1 - t) R    (arXiv:2501.03262)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from hf_credit.boundary import Range
from hf_credit.collectors import RolloutBatch, single_or_group
from hf_credit.credit import full_mean, token_returns, whitened
from hf_credit.methods import base
from hf_credit.methods.base import Credit, Method, paper
from hf_credit.options import Count, Options, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models", arxiv="2501.03262")


@dataclass(frozen=True, kw_only=True)
class WhitenedReturns(Options):
    """`token_returns` of the outcomes, `whitened` over the tokens of all processes.

    Failed episodes get no credit, and their tokens count in no mean.

    Args:
        gamma: discount factor per token; below 1 each token has its own credit.
        group_mean: whether the mean of the group is first subtracted from outcomes (REINFORCE++-baseline).
        correction: 1 for the unbiased variance; 0 for the biased one, as in OpenRLHF.
    """

    revision: ClassVar[int] = 2

    gamma: Share = 1.0
    group_mean: bool = False
    correction: Annotated[int, Range(0, 1)] = 1
    reads_tokens: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups"} if self.group_mean else ())

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = base.with_others(collected) if self.group_mean else base.without_errors(collected)
        outcomes, groups = base.outcomes_of(collected, rows)
        if self.group_mean:
            outcomes = full_mean(outcomes, groups)
        made = [[one for one in collected.episodes[row].decisions if not one.observed] for row in rows]
        spans = [[(len(one.action_ids), one.trained) for one in own] for own in made]
        pairs, local = base.all_gather_with_slice(list(zip(outcomes.tolist(), spans, strict=True)), context)
        all_outcomes = torch.tensor([outcome for outcome, _ in pairs], dtype=torch.float64)
        all_lengths = torch.tensor([sum(length for length, _ in own) for _, own in pairs], dtype=torch.long)
        returns = token_returns(all_outcomes, all_lengths, self.gamma)
        every = torch.tensor([span for _, own in pairs for span in own], dtype=torch.long).reshape(-1, 2)
        weights = every[:, 1].repeat_interleave(every[:, 0])
        first, last = int(all_lengths[: local.start].sum()), int(all_lengths[: local.stop].sum())
        rest = iter(whitened(returns, weights, correction=self.correction)[first:last].tolist())
        decisions = [decision for own in made for decision in own]
        by_token = [tuple(itertools.islice(rest, len(decision.action_ids))) for decision in decisions]
        credits = by_token if self.gamma < 1 else [next(iter(tokens), None) for tokens in by_token]
        return Credit(decisions=base.mean_by_decision(zip(decisions, credits, strict=True)))


@with_parts
def reinforce_plus_plus(group_size: Count = 1, estimator: WhitenedReturns = WhitenedReturns()) -> Method:
    """Returns the REINFORCE++ method.

    Args:
        group_size: number of episodes per task row; at least 2 with `group_mean`.

    Raises:
        ValueError: `group_size` is 1 with `group_mean`, or an option is out of range.
    """
    if estimator.group_mean and group_size < 2:
        raise ValueError(f"group_size must be at least 2 with group_mean=True, got {group_size}; raise it.")
    return Method(name="reinforce_plus_plus", collector=single_or_group(group_size), estimator=estimator, paper=PAPER)
