"""C3: alternatives at a frozen context, replayed, compared leave-one-out (the paper C3)."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from hf_credit.collectors import Collector, RolloutBatch, Tree, VisitedContexts
from hf_credit.credit import full_mean, group_scaled, leave_one_out, value_assisted
from hf_credit.critics.readings import joint_histories
from hf_credit.methods.base import Credit, CriticTargets, Method, paper
from hf_credit.methods.trees import step_weights
from hf_credit.options import Count, Options, Positive, Range, Share, with_parts
from hf_credit.rollouts.buckets import Alternative, alternatives
from hf_credit.rollouts.method_context import CriticInput, MethodContext

PAPER = paper(
    "Contextual Counterfactual Credit Assignment for Multi-Agent Reinforcement Learning in LLM Collaboration",
    arxiv="2603.06859",
)


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Options):
    """A message's mean return minus that of the others at its context (eqs. 11 to 15); alone, it gets no credit.

    Args:
        match_contexts: `False` is the ablation "w/o replay": whole episodes, messages compared whatever their
            contexts.
        baseline: `"leave_one_out"`, or `"full_mean"` for the ablation "w/o LOO" (eq. 26).
        normalise_credit: whether the credits of a context are divided by their standard deviation, as in the public
            code.
        value_assistance: the share of a message's baseline that comes from a critic of messages.
        return_clip: returns are clipped to [-return_clip, return_clip] (Appendix D).
        equal_steps: whether decisions are weighted by `step_weights`, so that all steps of a tree have equal weight;
            otherwise all decisions have, and the weight of a step is its number of alternatives.
    """

    match_contexts: bool = True
    baseline: Literal["leave_one_out", "full_mean"] = "leave_one_out"
    normalise_credit: bool = False
    value_assistance: Share = 0.0
    return_clip: Positive = 10.0
    equal_steps: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_assistance and self.baseline != "leave_one_out":
            raise ValueError(
                f"value_assistance must go with baseline='leave_one_out', got {self.baseline!r}; leave it at 0."
            )

    @property
    def needs(self) -> frozenset[str]:
        """What `Method.bind` requires of a collector."""
        return frozenset({"alternatives" if self.match_contexts else "groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        compared = alternatives(collected.episodes, self.match_contexts, collected.instances, self.return_clip)
        critic_targets = []
        expected: list[float] | None = None
        if self.value_assistance:
            inputs = [_message(collected, alternative) for alternative in compared]
            values = context.values(inputs)
            critic_targets.append(
                CriticTargets(inputs=inputs, targets=[(one.mean_outcome,) for one in compared], values=values)
            )
            expected = [value for (value,) in values]
        credits = self._credits(compared, expected)
        _log_buckets(compared, credits, context)
        given = {one.decision.id: credit for one, credit in zip(compared, credits, strict=True)}
        weights = step_weights(collected) if self.equal_steps else {}
        return Credit(decisions=given, weights=weights, critic_targets=critic_targets)

    def _credits(self, compared: Sequence[Alternative], expected: Sequence[float] | None) -> list[float | None]:
        if not compared:
            return []
        buckets = torch.tensor([one.bucket for one in compared])
        counts = torch.tensor([one.count for one in compared])
        returns = torch.tensor([one.mean_outcome for one in compared], dtype=torch.float64)
        credits = (leave_one_out if self.baseline == "leave_one_out" else full_mean)(returns, buckets, counts)
        if expected is not None:
            values = torch.tensor(expected, dtype=torch.float64)
            credits = value_assisted(returns, values, buckets, counts, self.value_assistance)
        if self.normalise_credit:
            credits = group_scaled(credits, buckets)
        sizes = torch.bincount(buckets)[buckets]
        return [value if size > 1 else None for value, size in zip(credits.tolist(), sizes.tolist(), strict=True)]


@with_parts
def replay_loo(
    budget: Annotated[int, Range(2)] = 8,
    alternatives: Sequence[int] = (2, 4),
    reference_rollouts: Annotated[int, Range(0)] = 0,
    contexts: Count = 2,
    num_replays: Count = 1,
    common_random_numbers: bool = False,
    estimator: LeaveOneOut = LeaveOneOut(),
) -> Method:
    """The method of paper C3.

    Args:
        budget: number of terminal scores per instance and update (eq. 24). The layout below must use it exactly.
        alternatives: number of messages sampled at the context of the first step, the second step and so on. Their
            product is the budget. With `reference_rollouts`, one number: the alternatives at each chosen context.
        reference_rollouts: with 0 the alternatives of one step are the contexts of the next, as in the paper's
            experiments (section 5.1). A positive number is exactly Algorithm 1: this many unscored episodes are
            played, and `contexts` of the contexts they visit are drawn.
        contexts: drawn from the reference rollouts of an instance; `contexts * alternatives * num_replays = budget`.
        num_replays: continuations of each alternative at a drawn context.
        common_random_numbers: whether the alternatives of a context are continued with the same random numbers
            (Appendix L). It has no effect, which the metrics show, if the sampler does not honour seeds.

    Raises:
        ValueError: a setting is out of range, or the layout does not use the budget.
    """
    if not estimator.match_contexts and estimator.value_assistance:
        raise ValueError("value_assistance must go with match_contexts=True, got False; leave it at 0.")
    if estimator.match_contexts:
        _refuse_impossible_layout(budget, alternatives, contexts, num_replays, reference_rollouts)
    collector: Collector
    if estimator.match_contexts and reference_rollouts:
        estimator = dataclasses.replace(estimator, equal_steps=False)  # drawn contexts are no tree
        collector = VisitedContexts(
            references=reference_rollouts,
            contexts=contexts,
            alternatives=alternatives[0],
            replays=num_replays,
            common_random_numbers=common_random_numbers,
            budget=budget,
        )
    else:
        fanout = tuple(alternatives) if estimator.match_contexts else (budget,)
        collector = Tree(fanout=fanout, common_random_numbers=common_random_numbers, budget=budget)
    critics = ("critic",) if estimator.value_assistance else ()
    return Method(name="replay_loo", collector=collector, estimator=estimator, critics=critics, paper=PAPER)


def _refuse_impossible_layout(
    budget: int, alternatives: Sequence[int], contexts: int, num_replays: int, reference_rollouts: int
) -> None:
    if not alternatives or min(alternatives) < 1 or max(alternatives) < 2:
        raise ValueError(
            f"alternatives must be 2 or more at some step and 1 or more at each, got {list(alternatives)}; one "
            "message alone has nothing to be compared with."
        )
    if not reference_rollouts:
        calls, layout = math.prod(alternatives), f"the product of alternatives={list(alternatives)}"
    elif len(alternatives) == 1:
        calls = contexts * alternatives[0] * num_replays
        layout = f"contexts * alternatives * num_replays = {contexts} * {alternatives[0]} * {num_replays}"
    else:
        raise ValueError(
            f"alternatives must be one number with reference_rollouts, got {list(alternatives)}; name how many "
            "messages each drawn context gets."
        )
    if calls != budget:
        raise ValueError(
            f"the layout must use the budget of an instance, got {layout} = {calls} for a budget of {budget}; change "
            "one."
        )


def _message(collected: RolloutBatch, alternative: Alternative) -> CriticInput:
    """All messages up to one, and this message."""
    row, turn = alternative.place
    ids = joint_histories(collected.episodes[row])[turn] + alternative.decision.action_ids
    return CriticInput(ids=ids, at=(len(ids),))


def _log_buckets(compared: Sequence[Alternative], credits: Sequence[float | None], context: MethodContext) -> None:
    if compared:
        sizes = list(Counter(alternative.bucket for alternative in compared).values())
        context.total("buckets/count", len(sizes))
        context.mean("buckets/alternatives", sizes)
        context.mean("buckets/alone", [float(credit is None) for credit in credits])
