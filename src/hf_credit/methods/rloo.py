"""RLOO: every decision gets the outcome of its episode minus the mean of the other episodes of the group.

A[i] = R[i] - mean_{j != i} R[j]    (arXiv:2402.14740)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hf_credit.credit import leave_one_out
from hf_credit.methods.base import paper
from hf_credit.methods.groups import OfTurns, Turns, of_groups
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arxiv="2402.14740",
)


@dataclass(frozen=True, kw_only=True)
class OthersMean(OfTurns):
    """`leave_one_out` of the outcomes of each instance. Failed episodes get no credit.

    In a tree, the others are the episodes without the decision.
    """

    revision: ClassVar[int] = 2

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        of_turns = played.visits().unbind(dim=1)
        return torch.stack([leave_one_out(played.outcomes, played.groups, episodes=one) for one in of_turns], dim=1)


rloo = of_groups("rloo", OthersMean(), PAPER)
