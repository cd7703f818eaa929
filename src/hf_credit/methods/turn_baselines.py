"""Two baselines per turn that are unbiased even if the policy decides the number of turns (verl, issue 7244).

alive_baseline:       A[i, t] = G[i, t] - mean_{j != i that reached t} G[j, t]
all_turns_baseline:   A[i, t] = G[i, t] - mean_{j != i} G[j, t],    G = the return from t, 0 after the end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hf_credit.credit import alive_advantages, all_turns_advantages
from hf_credit.methods.base import with_others
from hf_credit.methods.groups import OfTurns, Turns, of_groups
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class AliveMean(OfTurns):
    """`alive_advantages` of each instance: the return from a turn, minus that of the others that reached the turn.

    Failed episodes, and the only one of an instance that did not fail, get no credit.
    """

    revision: ClassVar[int] = 2

    rows = staticmethod(with_others)

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        return alive_advantages(*played.rewards(), played.groups, episodes=played.visits())


@dataclass(frozen=True, kw_only=True)
class AllTurnsMean(OfTurns):
    """`all_turns_advantages` of each instance: the baseline is the others' mean at every later turn, reached or not.

    Failed episodes, and the only one of an instance that did not fail, get no credit.
    """

    revision: ClassVar[int] = 3

    rows = staticmethod(with_others)

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        rewards, active = played.of_steps(lambda episode: [step[0].reward for step in episode.steps], sum)
        return all_turns_advantages(
            rewards, played.outcomes - rewards.sum(dim=1), active, played.groups, played.visits()
        )


alive_baseline = of_groups(
    "alive_baseline",
    AliveMean(),
    summary="The baseline of a turn is the mean return of the other episodes that reached it.",
)
all_turns_baseline = of_groups(
    "all_turns_baseline",
    AllTurnsMean(),
    summary="The baseline of a turn is the others' mean reward at this and every later turn plus their mean outcome.",
)
