"""Turn credit: the change of a running score in each turn, distributed over this turn and those before (prime-rl)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hf_credit import credit
from hf_credit.collectors import RolloutBatch
from hf_credit.methods.base import Credit, Method, outcomes_of, without_errors
from hf_credit.methods.turns import scored_group, scores, step_tokens, turn_to_decision_credit
from hf_credit.options import GroupSize, NotNegative, Options, Share, with_parts
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class SpreadDeltas(Options):
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

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups", "verdicts"} if self.turn_scores == "verdict" else {"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        turn_scores, scored = credit.pad_to_matrix([scores(collected.episodes[row], self.turn_scores) for row in rows])
        tokens, active = step_tokens(collected, rows)
        deltas = credit.score_deltas(turn_scores, scored)
        advantages = credit.turn_credit(deltas, outcomes, active, tokens, groups, self.gamma, self.beta)
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


@with_parts
def turn_credit(group_size: GroupSize = 8, estimator: SpreadDeltas = SpreadDeltas()) -> Method:
    """Returns the turn-credit method."""
    collector, evaluation = scored_group(group_size, estimator.turn_scores)
    return Method(name="turn_credit", collector=collector, estimator=estimator, evaluation=evaluation)
