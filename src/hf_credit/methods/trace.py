"""TRACE: in addition to the outcome, a turn gets what it adds to the right answer's probability by a frozen policy.

A[t] = A_O + turn_weight (mean of the next K changes of V, discounted)    (arXiv:2607.13988)
V[t] = log(d[0] / d[t]),    d[t] = gap - log-probability of the answer,    A_O = (R - mean_group R) / std_group R
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hf_credit.collectors import Answers, Group
from hf_credit.credit import log_ratio_advantages
from hf_credit.methods.base import Method, paper
from hf_credit.methods.groups import AnsweredTurns, OfTurns
from hf_credit.options import Count, GroupSize, NotNegative, Positive, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("TRACE: Turn-level Reward Assignment via Credit Estimation for Long-Horizon Agents", arxiv="2607.13988")


@dataclass(frozen=True, kw_only=True)
class LogRatios(OfTurns):
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
    turns = AnsweredTurns

    turn_weight: NotNegative = 0.2
    horizon: Count = 3
    gamma: Share = 0.8
    terminal: NotNegative = 2.0
    gap: Positive = 0.1
    eps: Positive = 1e-6

    def advantages(self, played: AnsweredTurns, context: MethodContext) -> Tensor:
        logprobs, active = played.logprobs()
        settings = self.turn_weight, self.horizon, self.gamma, self.terminal, self.gap, self.eps
        return log_ratio_advantages(logprobs, played.outcomes, active, played.groups, *settings)


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
