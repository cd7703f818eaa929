"""GiGPO: episodes compared at equal tasks, and their steps at equal states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import discounted_returns, group_in_group_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import ANCHORS, pad_to_matrix, state_numbers, step_rewards, turn_to_decision_credit
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import finite_number

PAPER = paper(
    "Group-in-Group Policy Optimization for LLM Agent Training",
    arxiv="2505.10978",
)


@dataclass(frozen=True, kw_only=True)
class GroupInGroup:
    """`group_in_group_advantages`, the steps of an instance compared where their anchors are equal.

    Episodes that failed get no credit.

    Args:
        anchor: as in `state_numbers`.
        gamma: discount of the next step's return, in [0, 1].
        weight, normalise, by_steps, eps: as in `group_in_group_advantages`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    anchor: str = "observation"
    gamma: float = 0.95
    weight: float = 1.0
    normalise: bool = False
    by_steps: bool = False
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.anchor not in ANCHORS:
            raise ValueError(f"anchor must be one of {', '.join(ANCHORS)}, got {self.anchor!r}; pick one.")
        if not 0 <= finite_number("gamma", self.gamma) <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {self.gamma}; the paper has .95.")
        finite_number("weight", self.weight, least=0)
        finite_number("eps", self.eps, above=0)

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        outcomes, groups = outcomes_of(collected, rows)
        rewards, active = pad_to_matrix([step_rewards(collected.episodes[row]) for row in rows])
        states = state_numbers(collected, rows, self.anchor, context)
        rollouts, _ = active.nonzero(as_tuple=True)
        advantages = torch.zeros_like(rewards)
        advantages[active] = group_in_group_advantages(
            outcomes,
            groups,
            discounted_returns(rewards, active, self.gamma)[active],
            torch.tensor(states, dtype=torch.long),
            rollouts,
            self.weight,
            self.normalise,
            self.by_steps,
            self.eps,
        )
        return Credit(decisions=turn_to_decision_credit(collected, rows, advantages))


def gigpo(
    group_size: int = 8,
    anchor: str = "observation",
    gamma: float = 0.95,
    weight: float = 1.0,
    normalise: bool = False,
    by_steps: bool = False,
    eps: float = 1e-6,
) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row.
        anchor, gamma, weight, normalise, by_steps, eps: as in `GroupInGroup`; the public code has `normalise` as
            `mean_std_norm`, and `by_steps` by default.
    """
    estimator = GroupInGroup(
        anchor=anchor, gamma=gamma, weight=weight, normalise=normalise, by_steps=by_steps, eps=eps
    )
    return Method(name="gigpo", collector=Group(size=group_size), estimator=estimator, paper=PAPER)
