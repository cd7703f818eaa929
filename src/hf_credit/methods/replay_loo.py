"""C3: leave-one-out advantages of alternatives that are replayed from the same context (the paper C3).

A[j] = R[j] - b[-j],    b[-j] = sum_{i != j} c[i] R[i] / sum_{i != j} c[i]    (eqs. 13 to 15)
over the messages at one context, with c the number of replays of a message
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch

from hf_credit.boundary import Range
from hf_credit.collectors import Collector, RolloutBatch, Tree, VisitedContexts
from hf_credit.credit import full_mean, group_scaled, leave_one_out, value_assisted
from hf_credit.credit.leave_one_out import number_of_others
from hf_credit.critics.inputs import context_inputs, joint_histories
from hf_credit.methods.base import INPUTS, Credit, CriticTargets, Method, paper
from hf_credit.methods.groups import filled_up
from hf_credit.methods.trees import step_weights
from hf_credit.options import Count, Options, Positive, Share, refuse_without_effect, with_parts
from hf_credit.rollouts.buckets import Alternative, alternatives
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper(
    "Contextual Counterfactual Credit Assignment for Multi-Agent Reinforcement Learning in LLM Collaboration",
    arxiv="2603.06859",
)


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Options):
    """The mean return of a message minus that of the other messages at its context (eqs. 11 to 15).

    Where a context recurs in an episode, messages that follow each other are not compared: what follows a message
    depends on it. A message without others at its context gets no credit.

    Args:
        match_contexts: `False` is the ablation "w/o replay": whole episodes, and messages of different contexts are
            compared.
        baseline: `"leave_one_out"`, or `"full_mean"` for the ablation "w/o LOO" (eq. 26).
        normalise_credit: whether the credit at a context is divided by its standard deviation, as in the public code.
        value_assistance: the weight of a critic of messages in the baseline.
        return_clip: returns are clipped to [-return_clip, return_clip] (Appendix D).
        equal_steps: whether decisions are weighted by `step_weights`, so that all steps of a tree have equal weight;
            otherwise all decisions have equal weight.
    """

    revision: ClassVar[int] = 2

    match_contexts: bool = True
    baseline: Literal["leave_one_out", "full_mean"] = "leave_one_out"
    normalise_credit: bool = False
    value_assistance: Share = 0.0
    return_clip: Positive = 10.0
    equal_steps: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_assistance and self.baseline != "leave_one_out":
            raise ValueError(f"value_assistance needs baseline='leave_one_out', got {self.baseline!r}; set it to 0.")

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"alternatives" if self.match_contexts else "groups"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        compared = alternatives(collected.episodes, self.match_contexts, collected.instances, self.return_clip)
        critic_targets = []
        predicted: list[float] | None = None
        if self.value_assistance:
            places = (one.place for one in compared)
            histories = [joint_histories(collected.episodes[row])[turn] for row, turn in places]
            messages = (one.decision.action_ids for one in compared)
            inputs = context_inputs([one + message for one, message in zip(histories, messages, strict=True)])
            values = context.values(inputs)
            critic_targets.append(
                CriticTargets(inputs=inputs, targets=[(one.mean_outcome,) for one in compared], values=values)
            )
            predicted = [value for (value,) in values]
        credits = self._credits(compared, predicted)
        if compared:
            sizes = list(Counter(one.bucket for one in compared).values())
            context.total("buckets/count", len(sizes))
            context.mean("buckets/alternatives", sizes)
            context.mean("buckets/alone", [float(credit is None) for credit in credits])
            context.mean(f"{INPUTS}alternatives at a context", [credit is not None for credit in credits])
        return Credit(
            decisions={one.decision.id: credit for one, credit in zip(compared, credits, strict=True)},
            weights=step_weights(collected) if self.equal_steps else {},
            critic_targets=critic_targets,
        )

    def _credits(self, compared: Sequence[Alternative], predicted: Sequence[float] | None) -> list[float | None]:
        if not compared:
            return []
        buckets = torch.tensor([one.bucket for one in compared])
        counts = torch.tensor([one.count for one in compared])
        returns = torch.tensor([one.mean_outcome for one in compared], dtype=torch.float64)
        episodes = filled_up([one.episodes for one in compared])
        compare = leave_one_out if self.baseline == "leave_one_out" else full_mean
        credits = compare(returns, buckets, counts, episodes)
        if predicted is not None:
            values = torch.tensor(predicted, dtype=torch.float64)
            credits = value_assisted(returns, values, buckets, counts, self.value_assistance, episodes)
        if self.normalise_credit:
            credits = group_scaled(credits, buckets)
        others = number_of_others(buckets, episodes)
        return [value if more else None for value, more in zip(credits.tolist(), others.tolist(), strict=True)]


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
    """Returns the C3 method.

    Args:
        budget: number of terminal scores per instance and update (eq. 24). The options below must use all of it.
        alternatives: number of messages sampled at the context of the first step, of the second, and so on; their
            product is the budget. With `reference_rollouts`, one number: the messages at each drawn context. Later
            steps have one message each, without credit: in long episodes, draw contexts.
        reference_rollouts: with 0, each message of a step leads to a context of the next, as in the paper's
            experiments (section 5.1). A positive number is Algorithm 1: this many unscored episodes are played, and
            `contexts` of the contexts they visit are drawn.
        contexts: number of contexts drawn per instance; `contexts * alternatives * num_replays = budget`.
        num_replays: number of continuations of each message at a drawn context.
        common_random_numbers: whether the messages at a context are continued with the same random numbers
            (Appendix L). It has no effect if the sampler ignores seeds; the metric `common_random_numbers` is then 0.

    Raises:
        ValueError: an option is out of range, or the options do not use the budget.
    """
    if not estimator.match_contexts and estimator.value_assistance:
        raise ValueError("value_assistance needs match_contexts=True, got False; set it to 0.")
    if not estimator.match_contexts:
        refuse_without_effect("with match_contexts=False", reference_rollouts=(reference_rollouts, 0))
    if not reference_rollouts:
        of_drawn = {"contexts": (contexts, 2), "num_replays": (num_replays, 1)}
        refuse_without_effect("without reference_rollouts", **of_drawn)
    if estimator.match_contexts:
        _refuse_impossible_layout(budget, alternatives, contexts, num_replays, reference_rollouts)
    collector: Collector
    if estimator.match_contexts and reference_rollouts:
        estimator = dataclasses.replace(estimator, equal_steps=False)  # drawn contexts are not a tree
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
            f"alternatives must be at least 1 at each step and at least 2 at some step, got {list(alternatives)}; "
            "raise them."
        )
    if not reference_rollouts:
        scores, layout = math.prod(alternatives), f"the product of alternatives={list(alternatives)}"
    elif len(alternatives) == 1:
        scores = contexts * alternatives[0] * num_replays
        layout = f"contexts * alternatives * num_replays = {contexts} * {alternatives[0]} * {num_replays}"
    else:
        raise ValueError(
            f"alternatives must be one number with reference_rollouts, got {list(alternatives)}; set the number of "
            "messages at each drawn context."
        )
    if scores != budget:
        raise ValueError(f"budget must equal {layout} = {scores}, got {budget}; change one of them.")
