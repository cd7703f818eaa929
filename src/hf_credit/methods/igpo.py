"""IGPO: every turn gets the gain in the policy's probability of the right answer, and the last one the outcome.

r[t] = p[t + 1] - p[t],    r[last] = R,    A[t] = sum_{u >= t} gamma^(u - t) z(r[u])    (arXiv:2510.14967)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from hf_credit.credit import information_gain_advantages
from hf_credit.methods.base import paper
from hf_credit.methods.groups import AnsweredTurns, OfTurns, of_groups
from hf_credit.options import Positive, Share
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Information Gain-based Policy Optimization: A Simple and Effective Approach for Multi-Turn Search Agents",
    arxiv="2510.14967",
)


@dataclass(frozen=True, kw_only=True)
class InformationGains(OfTurns):
    """`information_gain_advantages` of each instance. Failed episodes get no credit.

    Args:
        normalise: gains and outcomes of a group are normalised together (`"joint"`), so that turns are also compared
            with each other, or each among themselves (`"separate"`).
        gamma: discount factor per turn.
        eps: added to standard deviations.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "answers"})
    turns = AnsweredTurns

    normalise: Literal["joint", "separate"] = "joint"
    gamma: Share = 1.0
    eps: Positive = 1e-6

    def advantages(self, played: AnsweredTurns, context: MethodContext) -> Tensor:
        logprobs, active = played.logprobs()
        settings = self.gamma, self.normalise == "joint", self.eps
        return information_gain_advantages(logprobs, played.outcomes, active, played.groups, *settings)


igpo = of_groups("igpo", InformationGains(), PAPER)
