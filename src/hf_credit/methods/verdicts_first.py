"""Verdicts first, the outcome later: a weight between the two that is fixed, or measured in the training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import disagreement, group_advantages, pad_to_matrix, sure_share, turn_group_advantages
from hf_credit.methods.base import Credit, Estimator, compare_outcomes, verdict_score
from hf_credit.options import Share
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.rollouts.rows import one_number

OutcomeWeight = Share | Literal["measured"]


Disagreement = tuple[float, float]
"""The sums of `hf_credit.credit.disagreement` over all earlier updates."""


@dataclass(frozen=True, kw_only=True)
class VerdictsFirst:
    """The credit (1 - w) A_verdicts + w A_outcomes of each decision; a missing one counts as 0.

    A_verdicts is that of a method, A_outcomes the `group_advantages` or `placed_advantages` of outcomes. Verdicts take
    fewer tokens to learn from, but may not agree with the goal. With `weight="measured"`

        w = sure_share(sum of nd, sum of n)        over all earlier updates,

    where d is the `disagreement` of the mean verdicts of episodes with their outcomes, and n the number of episodes
    with the rarer outcome. So w is 0 at first, stays 0 where verdicts order episodes as outcomes do, and otherwise
    grows to 1 with the number of successes. It depends on no decision that it weighs.

    Attributes:
        verdicts: the estimator of the method.
        weight: w, or `"measured"`.
        grouped: whether outcomes are compared within a task, or over the update, with those after as many steps.
    """

    revision: ClassVar[int] = 2

    verdicts: Estimator
    weight: OutcomeWeight
    grouped: bool

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(getattr(self.verdicts, "needs", ()))

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Disagreement) -> Credit:
        w = sure_share(*memory) if self.weight == "measured" else self.weight
        context.log("outcome/weight", w)

        def advantages(values: Tensor, instances: Tensor) -> Tensor:
            nonlocal memory
            scores, outcomes, before = values.reshape(-1, 3).T
            groups = instances if self.grouped else before.long()
            known = ~outcomes.isnan()
            judged = known & ~scores.isnan()
            against, n = disagreement(scores[judged], outcomes[judged], groups[judged])
            memory = memory[0] + against, memory[1] + n
            if n:
                context.log("outcome/disagreement", against / n)
            compared = torch.full_like(outcomes, torch.nan)
            if self.grouped:
                compared[known] = group_advantages(outcomes[known], groups[known])
            elif known.any():
                placed = placed_advantages(outcomes[known].tolist(), groups[known].tolist())
                compared[known] = torch.tensor(placed, dtype=outcomes.dtype)
            return compared

        # Of alternatives that are not committed, only those that end the episode have an outcome.
        counted = replace(collected, rollouts=tuple(one for one in collected.rollouts if one.counted))
        outcomes = compare_outcomes(
            counted, advantages, context, lambda one: [verdict_score(one.decisions), one.outcome, one.steps_before]
        )
        verdicts = self.verdicts(collected, context, None)
        credits = defaultdict[str, float](float)
        for part, share in ((verdicts.decisions, 1 - w), (outcomes, w)):
            for name, value in part.items():
                number = one_number(value)
                if number is not None and number == number:  # NaN is an unknown outcome
                    credits[name] += share * number
        return replace(verdicts, decisions=credits, memory=memory)


def placed_advantages(outcomes: Sequence[float | None], before: Sequence[int]) -> list[float]:
    """Returns the `turn_group_advantages` of outcomes, 0 of those that are `None`: compared are episodes that begin
    after as many steps, if there are four, otherwise all."""
    placed = [[*[None] * steps, one] for steps, one in zip(before, outcomes, strict=True)]
    found = turn_group_advantages(*pad_to_matrix(placed))
    return [row[steps] for row, steps in zip(found.tolist(), before, strict=True)]


def weighed(verdicts: Any, weight: OutcomeWeight, grouped: bool = False) -> dict[str, Any]:
    """Returns the estimator and the memory of a method with `VerdictsFirst`, or just `verdicts` if the weight is 0.

    Raises:
        ValueError: the weight is not 0, and `verdicts` needs no verdicts.
    """
    if not weight:
        return {"estimator": verdicts}
    if "verdicts" not in verdicts.needs:
        raise ValueError(f"outcome_weight must be 0 without verdicts, got {weight!r}; score by verdicts.")
    mixed = VerdictsFirst(verdicts=verdicts, weight=weight, grouped=grouped)
    return {"estimator": mixed, "memory": (0.0, 0.0)}
