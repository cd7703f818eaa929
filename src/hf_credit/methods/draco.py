"""DRACO: the advantage of an episode by a rubric, redistributed to the steps that its criteria cite.

A[t] = A N w[t] / (n[t] sum_k w[k]),    w[t] = Q[t] if A >= 0, else 1 - Q[t]    (arXiv:2609.04094, eqs. 5 and 6)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hf_credit.credit import group_advantages, pad_to_matrix, redistributed_advantages
from hf_credit.methods.base import INPUTS, paper, verdict_score
from hf_credit.methods.groups import OfTurns, OfVerdicts, Turns, of_groups
from hf_credit.options import Positive
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import Criteria, TaskCriteria
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "DRACO: Fine-Grained Credit Assignment with Dynamic Rubrics for Long-Horizon Agent Training", arxiv="2609.04094"
)


@dataclass(frozen=True, kw_only=True)
class Rubric(OfVerdicts, OfTurns):
    """`redistributed_advantages` of the z-score in the group of R = (met - unmet) / (met + unmet) criteria.

    Failed episodes get no credit; nor do those without a known verdict, which are not compared.

    Args:
        criteria: the source of criteria: `"verdict"`, an oracle's, each of which is met by its score and cites its
            step, or the `"task"` itself (`TaskCriteria.criteria`), of which those that every episode of the group
            meets are left out.
        eps: added to standard deviations.
        outcome_weight: with verdicts, the weight of outcomes, as for `verifiable_process`.
    """

    revision: ClassVar[int] = 2

    criteria: Literal["verdict", "task"] = "verdict"
    eps: Positive = 1e-4

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"verdicts"} if self.criteria == "verdict" else set())

    def bind(self, interaction: Interaction[Any]) -> Rubric:
        """Returns the estimator unchanged.

        Raises:
            ValueError: criteria are the task's, which has none.
        """
        if self.criteria == "task" and not TaskCriteria(interaction).judges:
            raise ValueError(
                f"criteria='task' needs a task that judges by criteria, got {interaction.name!r}, which does not; "
                "implement its method criteria, or use 'verdict'."
            )
        return self

    def advantages(self, played: Turns, context: MethodContext) -> Tensor:
        groups = played.groups
        tokens, active = played.tokens()
        if self.criteria == "verdict":
            quality, there = played.table(verdict_score)
            known = there & ~quality.isnan()
            context.mean(f"{INPUTS}verdicts", known.any(dim=1).tolist())
            rewards = [_rate(own[mask].tolist(), math.nan) for own, mask in zip(quality, known, strict=True)]
        else:
            judged = [TaskCriteria(context.interaction).criteria(one.final_state) for one in played.episodes]
            context.mean(f"{INPUTS}criteria", [bool(one) for one in judged])
            kept = [_kept(one, judged, groups == group) for one, group in zip(judged, groups, strict=True)]
            turns = zip(kept, played.episodes, played.turns, strict=True)
            quality, _ = pad_to_matrix([_by_turn(one, whole.steps_before, own) for one, whole, own in turns])
            rewards = [_rate([float(met) for met, _ in one.values()], 0.0) for one in kept]
        advantages = torch.tensor(rewards, dtype=torch.float64)
        compared = ~advantages.isnan()
        advantages[compared] = group_advantages(advantages[compared], groups[compared], eps=self.eps)
        return redistributed_advantages(advantages, quality, tokens, active)


def _rate(met: Sequence[float], otherwise: float) -> float:
    """R, from how far each criterion is met, if any applies."""
    return 2 * sum(met) / len(met) - 1 if met else otherwise


def _kept(own: Criteria, judged: Sequence[Criteria], group: Tensor) -> Criteria:
    """The criteria that some episode of the group does not meet."""
    unmet = {
        name
        for one, member in zip(judged, group.tolist(), strict=True)
        if member
        for name, (met, _) in one.items()
        if not met
    }
    return {name: one for name, one in own.items() if name in unmet}


def _by_turn(criteria: Criteria, before: int, turns: Sequence[range]) -> list[float]:
    """For each turn, the share of met criteria among those that cite one of its steps; NaN without any."""
    places = [{before + step for step in turn} for turn in turns]
    cited = ([float(met) for met, steps in criteria.values() if not own.isdisjoint(steps)] for own in places)
    return [fmean(own or [math.nan]) for own in cited]


draco = of_groups("draco", Rubric(), PAPER)
