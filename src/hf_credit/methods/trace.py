"""TRACE: beside the outcome, a turn gets what it adds to the right answer's probability by a frozen policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_credit.collectors import Answers, Group, RolloutBatch
from hf_credit.credit import log_ratio_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import answer_logprobs, credit_of_steps
from hf_credit.options import Count, GroupSize, NotNegative, Options, Positive, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("TRACE: Turn-level Reward Assignment via Credit Estimation for Long-Horizon Agents", arxiv="2607.13988")


@dataclass(frozen=True, kw_only=True)
class LogRatios(Options):
    """`log_ratio_advantages` of each instance. Failed episodes get no credit.

    Args:
        turn_weight: the weight of turns; that of the outcome's advantage is 1.
        horizon: K, the number of turns whose changes of value count for a turn.
        gamma: discount factor of these changes.
        terminal: the weight of the outcome's advantage in a turn's credit if the K turns reach the last one.
        gap: added to the distance of the log-probability from 0.
        eps: added to standard deviations.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "answers"})

    turn_weight: NotNegative = 0.2
    horizon: Count = 3
    gamma: Share = 0.8
    terminal: NotNegative = 2.0
    gap: Positive = 0.1
    eps: Positive = 1e-6

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        steps, logprobs, active = answer_logprobs(collected, rows)
        settings = self.turn_weight, self.horizon, self.gamma, self.terminal, self.gap, self.eps
        outcomes, groups = outcomes_of(collected, rows)
        advantages = log_ratio_advantages(logprobs, outcomes, active, groups, *settings)
        return Credit(decisions=credit_of_steps(steps, advantages))


@with_parts
def trace(group_size: GroupSize = 8, refresh_every: Count = 1_000_000, estimator: LogRatios = LogRatios()) -> Method:
    """Returns the TRACE method.

    Args:
        refresh_every: number of updates after which the frozen copy becomes the present policy; with 1 it is the
            policy itself. By default, as in the paper, it stays that of the start.
    """
    return Method(
        name="trace",
        collector=Answers(inner=Group(size=group_size), policy="frozen"),
        estimator=estimator,
        refresh_frozen_every=refresh_every,
        paper=PAPER,
    )
