"""SEPO: an agent gets the team's outcome, shifted by the share that all agents say it has (code of paper CCPO).

    A_i = z(2 R - 1 + c (w_i - mean w_i)),    c = credit_weight if R > 1/2, else -blame_weight

with w_i the share of role i and z by the group.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from hf_credit.collectors import Group, Ratings, RolloutBatch
from hf_credit.collectors.ratings import SHARES
from hf_credit.credit import group_advantages, rated_rewards
from hf_credit.methods.base import INPUTS, Credit, Method, mean_by_decision, outcomes_of, paper, without_errors
from hf_credit.options import Count, GroupSize, NotNegative, Options, Positive, Share, filled_by_factory, with_parts
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Counterfactual Credit Policy Optimization for Multi-Agent Collaboration", arxiv="2603.21563")


@dataclass(frozen=True, kw_only=True)
class RatedShares(Options):
    """`rated_rewards` of each role, normalised in the group (`group_advantages`). Failed episodes get no credit.

    Args:
        self_weight: the weight of a role's rating of itself; that of the others' mean is the rest.
        credit_weight: of the share in a correct result, an outcome above 1/2.
        blame_weight: of the share in a wrong one.
        eps: added to standard deviations.
        roles: of the team, in order; filled in by `bind`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups", "ratings"})

    self_weight: Share = 0.3
    credit_weight: NotNegative = 0.2
    blame_weight: NotNegative = 0.2
    eps: Positive = 1e-6
    roles: tuple[str, ...] = filled_by_factory(())

    def bind(self, interaction: Interaction[Any]) -> RatedShares:
        """Returns the estimator for the roles of one Interaction."""
        return dataclasses.replace(self, roles=tuple(interaction.roles))

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rated = {row: SHARES in collected.trained[row].extras for row in without_errors(collected)}
        context.mean(f"{INPUTS}ratings", [*rated.values()])
        rows = [row for row in rated if rated[row]]
        outcomes, groups = outcomes_of(collected, rows)
        count = len(self.roles)
        shares = torch.tensor([collected.trained[row].extras[SHARES] for row in rows], dtype=torch.float64)
        weights = self.self_weight, self.credit_weight, self.blame_weight
        rewards = rated_rewards(outcomes, shares.reshape(-1, count, count), groups, *weights)
        advantages = [group_advantages(column, groups, eps=self.eps).tolist() for column in rewards.T.contiguous()]
        of_role = dict(zip(self.roles, advantages, strict=True))
        nothing = [None] * len(rows)
        return Credit(
            decisions=mean_by_decision(
                (decision, of_role.get(decision.role, nothing)[place])
                for place, row in enumerate(rows)
                for decision in collected.episodes[row].decisions
            )
        )


@with_parts
def sepo(group_size: GroupSize = 8, max_tokens: Count = 512, estimator: RatedShares = RatedShares()) -> Method:
    """Returns the SEPO method.

    Args:
        max_tokens: the most tokens of a rating.
    """
    collector = Ratings(inner=Group(size=group_size), max_tokens=max_tokens)
    return Method(name="sepo", collector=collector, estimator=estimator, paper=PAPER)
