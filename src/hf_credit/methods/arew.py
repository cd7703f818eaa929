"""AREW: the advantage of an episode, moved from its turns with a negative critique to those with a positive one.

A[t] = A + strength u[t],    u[t] = 1/P if the critique is positive, -1/N if negative, else 0    (arXiv:2603.12109)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hf_credit.collectors import RolloutBatch
from hf_credit.credit.shapes import Float, Shaped
from hf_credit.methods.base import Credit, paper, without_errors
from hf_credit.methods.groups import OfScores, Turns, of_groups
from hf_credit.methods.grpo import GroupScore
from hf_credit.options import NotNegative
from hf_credit.oracles.base import ACCEPTED_ABOVE
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "On Information Self-Locking in Reinforcement Learning for Active Reasoning of LLM agents", arxiv="2603.12109"
)


def critique_shifts(
    critiques: Shaped[Tensor, "rollouts turns"], minority: bool = False
) -> Float[Tensor, "rollouts turns"]:
    """Returns what the advantage of each turn is shifted by, without its strength (AREW, arXiv:2603.12109).

        u[t] = 1/P if the critique is positive, -1/N if it is negative, else 0;    all 0 if P = 0 or N = 0

    with P and N the numbers of such turns of the rollout, so that the shifts of a rollout sum to 0.

    Args:
        critiques: their signs count; 0 for a turn without one.
        minority: whether shifts are multiplied by the smaller of P and N: the rarer sign has 1, as in the default of
            the public code.
    """
    positive, negative = (critiques > 0).double(), (critiques < 0).double()
    ups, downs = (one.sum(dim=1, keepdim=True) for one in (positive, negative))
    shifts = positive / ups.clamp(min=1) - negative / downs.clamp(min=1)
    fewer = torch.minimum(ups, downs)
    return shifts * (fewer if minority else fewer.clamp(max=1))


@dataclass(frozen=True, kw_only=True)
class Critiqued(OfScores, GroupScore):
    """The advantage of GRPO plus `strength` times `critique_shifts`. Failed episodes get no credit.

    Args:
        scale, eps: as for `grpo`.
        turn_scores: the source of critiques: an oracle's `"verdict"`, positive above 1/2, otherwise negative; the
            sign of the Interaction's `"reward"` for the step; or that of the change of a `"score"`, if the
            Interaction's number for a step is a score of the state after it.
        strength: of the shifts.
        minority: whether the turns of the rarer sign are shifted by the whole strength, rather than all of one sign by
            it together.
        outcome_weight: with verdicts, the weight of the advantage of GRPO alone, as for `verifiable_process`.
    """

    turn_scores: Literal["reward", "score", "verdict"] = "verdict"
    strength: NotNegative = 0.1
    minority: bool = False

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        credit = super().__call__(collected, context, memory)
        played = Turns(collected, without_errors(collected))
        found, there = self.scores(played, context)
        judged = torch.where(found > ACCEPTED_ABOVE, 1, -1) if self.turn_scores == "verdict" else found
        signs = torch.where(there & ~found.isnan(), judged, 0)
        shifts = played.credit(self.strength * critique_shifts(signs, self.minority))
        decisions = {name: credit.decisions[name] + shift for name, shift in shifts.items()}  # type: ignore[operator]
        return replace(credit, decisions=decisions)


arew = of_groups("arew", Critiqued(), PAPER)
