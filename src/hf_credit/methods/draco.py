"""DRACO: the advantage of an episode by a rubric, redistributed to the steps that its criteria cite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import group_advantages, pad_to_matrix, redistributed_advantages
from hf_credit.methods.base import Credit, Method, outcomes_of, paper, without_errors
from hf_credit.methods.turns import scored_group, scores, step_tokens, turn_to_decision_credit
from hf_credit.options import GroupSize, Options, Positive, with_parts
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import Criteria, Judged
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "DRACO: Fine-Grained Credit Assignment with Dynamic Rubrics for Long-Horizon Agent Training", arxiv="2609.04094"
)


@dataclass(frozen=True, kw_only=True)
class Rubric(Options):
    """`redistributed_advantages` of the z-score in the group of R = (met - unmet) / (met + unmet) criteria.

    Failed episodes get no credit.

    Args:
        criteria: the source of criteria: `"verdict"`, an oracle's, each of which is met by its score and cites its
            step, or the `"task"` itself (`Judged.criteria`), of which those that every episode of the group meets are
            left out.
        eps: added to standard deviations.
    """

    criteria: Literal["verdict", "task"] = "verdict"
    eps: Positive = 1e-4

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups", "verdicts"} if self.criteria == "verdict" else {"groups"})

    def bind(self, interaction: Interaction[Any]) -> Rubric:
        """Returns the estimator unchanged.

        Raises:
            ValueError: criteria are the task's, which has none.
        """
        if self.criteria == "task" and not Judged(interaction).judges:
            raise ValueError(
                f"criteria='task' needs a task that judges by criteria, got {interaction.name!r}, which does not; "
                "implement its method criteria, or use 'verdict'."
            )
        return self

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        _, groups = outcomes_of(collected, rows)
        tokens, active = step_tokens(collected, rows)
        acting = [[float(not all(d.observed for d in step)) for step in collected.episodes[row].steps] for row in rows]
        active &= pad_to_matrix(acting)[0] > 0
        if self.criteria == "verdict":
            found = [scores(collected.episodes[row], "verdict") for row in rows]
            cited = [[[one] if one is not None else [] for one in of_episode] for of_episode in found]
            rewards = [_rate([one for one in of_episode if one is not None]) for of_episode in found]
        else:
            judged = [Judged(context.interaction).criteria(collected.episodes[row].final_state) for row in rows]
            kept = [_kept(one, judged, groups == group) for one, group in zip(judged, groups, strict=True)]
            cited = [_by_step(one, length) for one, length in zip(kept, map(len, acting), strict=True)]
            rewards = [_rate([float(met) for met, _ in one.values()]) for one in kept]
        quality = pad_to_matrix([[sum(own) / len(own) if own else math.nan for own in steps] for steps in cited])[0]
        advantages = group_advantages(torch.tensor(rewards, dtype=torch.float64), groups, eps=self.eps)
        of_steps = redistributed_advantages(advantages, quality, tokens, active)
        return Credit(decisions=turn_to_decision_credit(collected, rows, of_steps))


def _rate(met: Sequence[float]) -> float:
    """R, from how far each criterion is met; 0 if none applies."""
    return 2 * sum(met) / len(met) - 1 if met else 0.0


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


def _by_step(criteria: Criteria, length: int) -> list[list[float]]:
    """For each step, how far the criteria that cite it are met."""
    return [[float(met) for met, steps in criteria.values() if step in steps] for step in range(length)]


@with_parts
def draco(group_size: GroupSize = 8, estimator: Rubric = Rubric()) -> Method:
    """Returns the DRACO method."""
    collector, evaluation = scored_group(group_size, "verdict" if estimator.criteria == "verdict" else "reward")
    return Method(name="draco", collector=collector, estimator=estimator, evaluation=evaluation, paper=PAPER)
