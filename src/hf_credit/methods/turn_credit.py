"""Turn credit: the reward of each turn, or change of a score, distributed over it and those before (prime-rl).

c[t] = sum_{u >= t} delta[u] gamma^(u - t) / sum_{j < u} gamma^j    (prime-rl, pull request 3282)
A[t] = x - mean_group x + beta (c[t] - mean of c over tokens),    x = R + sum_t delta[t]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from hf_credit import credit
from hf_credit.methods.groups import OfScores, OfTurns, Turns, of_groups
from hf_credit.options import NotNegative, Share
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class SpreadDeltas(OfScores, OfTurns):
    """`hf_credit.credit.turn_credit` of each instance. Failed episodes get no credit.

    Args:
        turn_scores: the source of changes: the Interaction's `"reward"` for the step, which is a part of the outcome;
            the change of a `"score"`, if the Interaction's number for a step is a score of the state after it; or that
            of an oracle's `"verdict"`. A turn without a verdict changes nothing.
        gamma: decay of a change over the turns before it.
        beta: weight of the differences between turns; with 0 all turns have the advantage of the episode, which
            includes the changes of scores and verdicts.
    """

    revision: ClassVar[int] = 2

    turn_scores: Literal["reward", "score", "verdict"] = "reward"
    gamma: Share = 0.9
    beta: NotNegative = 1.0

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        deltas, active = self.scores(played, context)
        if self.turn_scores == "verdict":
            deltas = credit.score_deltas(deltas, active & ~deltas.isnan())
        beside = self.beside(deltas, played.outcomes)
        settings = played.tokens()[0], played.groups, self.gamma, self.beta
        return credit.turn_credit(deltas, beside, active, *settings)


turn_credit = of_groups("turn_credit", SpreadDeltas())
