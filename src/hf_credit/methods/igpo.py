"""IGPO: every turn gets the gain in the policy's probability of the right answer, and the last one the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hf_credit.collectors import Answers, Group, RolloutBatch
from hf_credit.credit import information_gain_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import answer_logprobs, credit_of_steps
from hf_credit.options import GroupSize, Options, Positive, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Information Gain-based Policy Optimization: A Simple and Effective Approach for Multi-Turn Search Agents",
    arxiv="2510.14967",
)


@dataclass(frozen=True, kw_only=True)
class InformationGains(Options):
    """`information_gain_advantages` of each instance. Failed episodes get no credit.

    Args:
        normalise: gains and outcomes of a group are normalised together (`"joint"`), so that turns are also compared
            with each other, or each among themselves (`"separate"`).
        gamma: discount factor per turn.
        eps: added to standard deviations.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "answers"})

    normalise: Literal["joint", "separate"] = "joint"
    gamma: Share = 1.0
    eps: Positive = 1e-6

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        steps, logprobs, active = answer_logprobs(collected, rows)
        settings = self.gamma, self.normalise == "joint", self.eps
        outcomes, groups = outcomes_of(collected, rows)
        advantages = information_gain_advantages(logprobs, outcomes, active, groups, *settings)
        return Credit(decisions=credit_of_steps(steps, advantages))


@with_parts
def igpo(group_size: GroupSize = 8, estimator: InformationGains = InformationGains()) -> Method:
    """Returns the IGPO method."""
    collector = Answers(inner=Group(size=group_size))
    return Method(name="igpo", collector=collector, estimator=estimator, paper=PAPER)
