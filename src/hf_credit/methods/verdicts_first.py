"""Verdicts first, the outcome later: a weight between the two that is fixed, or measured in the training."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

import torch

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import disagreement, surely_known
from hf_credit.methods.base import Credit, Estimator, all_gather_with_slice
from hf_credit.methods.turns import score
from hf_credit.options import Share
from hf_credit.rollouts import Ending, Interaction
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.rollouts.rows import one_number

OutcomeWeight = Share | Literal["measured"]
"""A fixed weight of the outcome, or `"measured"`."""


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """What earlier updates say about verdicts and outcomes: sums of `hf_credit.credit.disagreement`."""

    against: float = 0.0
    comparisons: float = 0.0


@dataclass(frozen=True, kw_only=True)
class VerdictsFirst:
    """A mixture of the credit from verdicts and that from outcomes.

        A = (1 - w) A_verdicts + w A_outcomes

    A verdict costs few tokens to learn from, but need not agree with the goal; the outcome is the goal, but says little
    while successes are rare. A measured w is the share of the disagreement of mean verdicts and outcomes that is sure:

        w = surely_known(sum of n d, sum of n)       over all earlier updates

    with n the number of episodes with the rarer outcome and d their disagreement with the others (`disagreement`). So
    w is 0 in the first update, stays 0 where verdicts order all episodes as outcomes do, stays small while successes
    are rare, and tends to 1 where verdicts leave something of the outcome unexplained. It depends on no action that it
    weighs. Decisions with only one of the two have 0 for the other.

    Attributes:
        verdicts: the method's own credit.
        outcomes: the credit from outcomes.
        weight: w, or `"measured"`.
        grouped: whether only episodes of one task are compared, or all of an update.
    """

    verdicts: Estimator
    outcomes: Estimator
    weight: OutcomeWeight = "measured"
    grouped: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset(getattr(self.verdicts, "needs", ()))

    def bind(self, interaction: Interaction[Any]) -> VerdictsFirst:
        """Returns the estimator for one Interaction, as its parts are."""
        parts = {"verdicts": self.verdicts, "outcomes": self.outcomes}
        return replace(
            self, **{name: one.bind(interaction) if hasattr(one, "bind") else one for name, one in parts.items()}
        )

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Disagreement | None = None) -> Credit:
        memory = memory or Disagreement()
        measured = surely_known(memory.against, memory.comparisons)
        weight = measured if self.weight == "measured" else self.weight
        against, comparisons = self._disagreement(collected, context)
        context.log("outcome/weight", weight)
        if comparisons:
            context.log("outcome/disagreement", against / comparisons)
        own = self.verdicts(collected, context, None)
        outcomes = self.outcomes(collected, context, None).decisions
        credits = defaultdict[str, float](float)
        for part, share in ((own.decisions, 1 - weight), (outcomes, weight)):
            for name, value in part.items():
                if (number := one_number(value)) is not None:
                    credits[name] += share * number
        memory = Disagreement(against=memory.against + against, comparisons=memory.comparisons + comparisons)
        return replace(own, decisions=credits, memory=memory)

    def _disagreement(self, collected: RolloutBatch, context: MethodContext) -> tuple[float, float]:
        before = sum(context.gather([collected.rows])[: context.process])
        known = []
        for rollout in collected.trained:
            verdicts = [score([one], "verdict") for one in rollout.episode.decisions]
            verdicts = [one for one in verdicts if not math.isnan(one)]
            judged = rollout.episode.ending != Ending.ERROR and not math.isnan(rollout.episode.outcome)
            if verdicts and judged:
                known.append((fmean(verdicts), rollout.episode.outcome, self.grouped * (before + rollout.instance)))
        every, _ = all_gather_with_slice(known, context)
        table = torch.tensor(every, dtype=torch.float64).reshape(-1, 3)
        return disagreement(table[:, 0], table[:, 1], table[:, 2].long())


def weighed(verdicts: Estimator, outcomes: Estimator, weight: OutcomeWeight, grouped: bool) -> dict[str, Any]:
    """Returns the estimator and the memory of a method whose option `outcome_weight` is `weight`.

    Args:
        verdicts, outcomes, weight, grouped: as in `VerdictsFirst`; it is `verdicts` itself if the weight is 0.

    Raises:
        ValueError: the weight is not 0, and `verdicts` is no estimator from verdicts.
    """
    if weight == 0:
        return {"estimator": verdicts}
    mixed = VerdictsFirst(verdicts=verdicts, outcomes=outcomes, weight=weight, grouped=grouped)
    if "verdicts" not in mixed.needs:
        raise ValueError(
            f"outcome_weight must be 0 without rewards from verdicts, got {weight!r}; set turn_scores to verdict."
        )
    return {"estimator": mixed, "memory": Disagreement()}
