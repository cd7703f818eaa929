"""Diagnoses a policy: on buckets and attempts, or on the credit of a training update."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hf_credit.diagnostics.bucket_credit import RememberedValues, standard_methods, with_exact_values
from hf_credit.diagnostics.bucket_sampling import BucketPlan, diagnostic_buckets
from hf_credit.diagnostics.diagnosis import Diagnosis, diagnose
from hf_credit.diagnostics.success import pass_at_k_by_instance
from hf_credit.diagnostics.training_credit import (
    TrainedDecision,
    TrainingDiagnosis,
    exact_advantages,
    training_credit,
)
from hf_credit.evaluation.play import attempt
from hf_credit.evaluation.statistics import Interval, mean_with_interval
from hf_credit.methods import Method
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Engine, Ledger, RolloutRequest
from hf_credit.rollouts.method_context import CriticInput, LocalContext, Logprobs

Critic = Callable[[Sequence[CriticInput]], Sequence[tuple[float, ...]]]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A policy to diagnose.

    Attributes:
        engine: plays with the policy.
        greedy: plays with the policy at temperature 0, for `attempts`.
        trained: the method that it was trained with, if known.
        critics: its critics, by name.
        logprobs: computes log-probabilities of its tokens for methods that need them; by default those of the sampler.
        end_tokens: the tokens that end its replies; by default that of the tokenizer.
        exact: the arguments of `exact_values` besides interaction, chat and states; `None` computes no exact values.
    """

    name: str
    engine: Engine[Any]
    greedy: Engine[Any] | None = None
    trained: Method | None = None
    critics: Mapping[str, Critic] = field(default_factory=dict)
    logprobs: Logprobs | None = None
    end_tokens: Collection[int] | None = None
    exact: Mapping[str, Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def context(self, seed: int = 0) -> LocalContext:
        """Returns a context with the policy, its critics and, as the frozen copy, the policy itself."""
        remembered = {name: RememberedValues(critic) for name, critic in self.critics.items()}
        return LocalContext(self.engine, remembered, seed, self.engine, self.logprobs, self.end_tokens)


def diagnose_policy(
    subject: Subject,
    starts: Sequence[RolloutRequest[Any]],
    plan: BucketPlan,
    *,
    methods: Mapping[str, Method] | None = None,
    oracle: Oracle[Any] | None = None,
    attempts: int = 0,
    credit_replays: int = 1,
) -> Diagnosis:
    """Samples buckets of a policy and diagnoses them, and measures greedy success and pass@k if `attempts` is not 0.

    Args:
        starts: the tasks, one start each.
        plan: the numbers of buckets, candidates and replays.
        methods: methods to measure besides those of `standard_methods`, by the name to show.
        oracle: judges the candidates.
        attempts: sampled episodes per task for pass@k, besides a greedy one; 0 plays none.
        credit_replays: as in `diagnose`.

    Raises:
        ValueError: a number or a method is invalid.
    """
    if attempts and subject.greedy is None:
        raise ValueError("attempts need a greedy engine, got none; pass one, or 0 attempts.")
    engine = subject.engine
    asked = {label: method.bind(engine.interaction) for label, method in (methods or {}).items()}
    buckets, cost = diagnostic_buckets(engine, starts, plan, oracle=oracle)
    if subject.exact is not None:
        buckets = with_exact_values(buckets, engine.interaction, engine.chat, **subject.exact)
    success: dict[str, Interval] = {}
    if attempts and subject.greedy is not None:
        success, played = _success(subject.greedy, engine, starts, attempts, plan.seed)
        cost += played
    standard = standard_methods(buckets, subject.trained)
    asked = {**{label: method.bind(engine.interaction) for label, method in standard.items()}, **asked}
    about = {**subject.about, "attempts": attempts, "credit_replays": credit_replays}
    return diagnose(
        subject.name,
        buckets,
        asked,
        subject.context(plan.seed),
        success=success,
        cost=cost,
        about={**about, "methods": {label: method.spec() for label, method in asked.items()}},
        credit_replays=credit_replays,
    )


def diagnose_training(
    subject: Subject,
    starts: Sequence[RolloutRequest[Any]],
    plan: BucketPlan,
    methods: Mapping[str, Method] | None = None,
) -> list[TrainingDiagnosis]:
    """Measures the credit of a training update with each method.

    Args:
        starts: the tasks of the update, one start each; their seeds become those of the task rows.
        plan: as in `training_credit`.
        methods: the methods to measure, by the name to show; by default the method that the policy was trained with.

    Raises:
        ValueError: no method is named or known, or as `training_credit`.
    """
    asked = dict(methods or {})
    if not asked:
        if subject.trained is None:
            raise ValueError(
                f"the credit of training needs a method, got none and none is recorded for {subject.name!r}; name one."
            )
        asked = {subject.trained.name: subject.trained}
    engine, exact = subject.engine, subject.exact

    def advantages(decisions: Sequence[TrainedDecision]) -> list[float]:
        return exact_advantages(engine.interaction, engine.chat, decisions=decisions, **(exact or {}))

    rows = [start.task if start.seed is None else {**start.task, "seed": start.seed} for start in starts]
    found = []
    for label, method in asked.items():
        about = {**subject.about, "method": method.spec(), "rows": len(rows)}
        context = subject.context(plan.seed)
        measured = training_credit(
            method, context, rows, plan, name=subject.name, exact=None if exact is None else advantages, about=about
        )
        found.append(replace(measured, method=label))
    return found


def _success(
    greedy: Engine[Any], drawn: Engine[Any], starts: Sequence[RolloutRequest[Any]], attempts: int, seed: int
) -> tuple[dict[str, Interval], Ledger]:
    once, cost = attempt(greedy, starts, 1, seed)
    often, more = attempt(drawn, starts, attempts, seed)
    shares = {"greedy": pass_at_k_by_instance(once, 1), "pass@1": pass_at_k_by_instance(often, 1)}
    if attempts > 1:
        shares[f"pass@{attempts}"] = pass_at_k_by_instance(often, attempts)
    return {name: mean_with_interval(values) for name, values in shares.items()}, cost + more
