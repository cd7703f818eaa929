"""Turn credit: the change of a running score in each turn, distributed over this turn and those before (prime-rl)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from hf_credit import credit
from hf_credit.methods.groups import OfScores, OfTurns, of_groups
from hf_credit.methods.turns import Turns
from hf_credit.options import NotNegative, Share
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class SpreadDeltas(OfScores, OfTurns):
    """`hf_credit.credit.turn_credit` of each instance. Failed episodes get no credit.

    Args:
        turn_scores: the source of the running score: the Interaction's `"reward"` for a step, taken as the score after
            it, or an oracle's `"verdict"`. A turn without a verdict does not change the score.
        gamma: decay of a change over the turns before it.
        beta: weight of the differences between turns; with 0 all turns have the advantage of the episode, which
            includes the changes.
    """

    turn_scores: Literal["reward", "verdict"] = "reward"
    gamma: Share = 0.9
    beta: NotNegative = 1.0

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        scores, _ = self.scores(played)
        tokens, active = played.tokens()
        deltas = credit.score_deltas(scores, active & ~scores.isnan())
        settings = self.gamma, self.beta
        return credit.turn_credit(deltas, played.outcomes, active, tokens, played.groups, *settings)


turn_credit = of_groups("turn_credit", SpreadDeltas())
