"""Two baselines per turn that are unbiased even if the policy decides the number of turns (verl, issue 7244)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import alive_advantages, all_turns_advantages, pad_to_matrix
from hf_credit.methods.base import Credit, Method, outcomes_of, with_others
from hf_credit.methods.turns import step_rewards, turn_to_decision_credit
from hf_credit.options import GroupSize, with_parts
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class AliveMean:
    """`alive_advantages` of each instance: the return from a turn, minus that of the others that reached the turn.

    Failed episodes, and the only one of an instance that did not fail, get no credit.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = with_others(collected)
        rewards, active = pad_to_matrix([step_rewards(collected.episodes[row]) for row in rows])
        advantages = alive_advantages(rewards, active, outcomes_of(collected, rows)[1])
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


@dataclass(frozen=True, kw_only=True)
class AllTurnsMean:
    """`all_turns_advantages` of each instance: the baseline is the others' mean at every later turn, reached or not.

    Failed episodes, and the only one of an instance that did not fail, get no credit.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = with_others(collected)
        outcomes, groups = outcomes_of(collected, rows)
        steps = [[step[0].reward for step in collected.episodes[row].steps] for row in rows]
        rewards, active = pad_to_matrix(steps)
        advantages = all_turns_advantages(rewards, outcomes - rewards.sum(dim=1), active, groups)
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


@with_parts
def alive_baseline(group_size: GroupSize = 8) -> Method:
    """The baseline of a turn is the mean return of the other episodes that reached it."""
    return Method(name="alive_baseline", collector=Group(size=group_size), estimator=AliveMean())


@with_parts
def all_turns_baseline(group_size: GroupSize = 8) -> Method:
    """The baseline of a turn is the others' mean reward at this and every later turn plus their mean outcome."""
    return Method(name="all_turns_baseline", collector=Group(size=group_size), estimator=AllTurnsMean())
