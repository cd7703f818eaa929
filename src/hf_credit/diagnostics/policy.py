"""A policy, diagnosed: buckets and attempts, or the credit of an update of training."""

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
from hf_credit.evaluation.attempts import attempt
from hf_credit.evaluation.statistics import Interval, mean_with_interval
from hf_credit.methods import Method
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Engine, Ledger, RolloutRequest
from hf_credit.rollouts.method_context import CriticInput, LocalContext, Logprobs

Critic = Callable[[Sequence[CriticInput]], Sequence[tuple[float, ...]]]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A policy that is diagnosed, and what is known of it.

    Attributes:
        name: of the policy.
        engine: plays, with the policy.
        greedy: the same without chance, for `attempts`.
        trained: the method that it was trained with, where that is known.
        critics: that were trained beside it, by name.
        logprobs: those of its tokens, where a method asks for them; what the sampler reported if `None`.
        end_tokens: those that end its replies; the tokenizer's own if `None`.
        exact: the arguments of `exact_values` beside interaction, chat and states, if all replies can be enumerated;
            with them, true values are found too.
        about: plain values for the reader.
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
        """Plays with the policy and asks its critics; its frozen copy is the policy itself."""
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
    """Samples buckets of a policy and measures what they say; plays it for greedy and pass@k on request.

    Args:
        subject: the policy.
        starts: the tasks, one start each.
        plan: of the buckets.
        methods: whose credit to measure, by the name to show, beside those of `standard_methods`.
        oracle: judges the candidates of a game.
        attempts: for pass@k, drawn episodes at each task, and one greedy one; none if 0.
        credit_replays: as in `diagnose`.

    Raises:
        ValueError: a number or a method is not possible, in one sentence.
    """
    if attempts and subject.greedy is None:
        raise ValueError("attempts need an engine without chance, got none; give a greedy one, or 0 attempts.")
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
    """Measures the credit of an update of training, by each method.

    Args:
        subject: the policy.
        starts: the tasks of the update, one start each; their seeds become those of the task rows.
        plan: as in `training_credit`.
        methods: whose credit to measure, by the name to show; that of the method it was trained with if none.

    Raises:
        ValueError: no method is named and none is known, or as `training_credit`.
    """
    asked = dict(methods or {})
    if not asked:
        if subject.trained is None:
            raise ValueError(
                f"the credit of training is that of a method, got none and none is noted beside {subject.name!r}; "
                "name one."
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
