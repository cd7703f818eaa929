"""The diagnosis of a policy on buckets: the accuracy of methods' credit, influence and failures."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any, TypeVar

from hf_credit.diagnostics.bucket_credit import Truth, assigned_credit, credit_and_targets, standard_methods
from hf_credit.diagnostics.buckets import Bucket
from hf_credit.diagnostics.fidelity import credit_fidelity, fidelity_interval
from hf_credit.diagnostics.influence import Influence, influence, influence_by_chance
from hf_credit.diagnostics.taxonomy import Failure
from hf_credit.diagnostics.variance import ContextVariance, context_variance
from hf_credit.evaluation.results import range_of
from hf_credit.evaluation.statistics import Interval, mean_with_interval
from hf_credit.methods import Method
from hf_credit.rollouts import Ledger
from hf_credit.rollouts.method_context import MethodContext

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRUTHS = {"shared": "same returns", "apart": "other replays", "exact": "exact", "exact_first": "exact, first replays"}
"""The targets of fidelity, and their names in tables."""

ALL = "all events"


@dataclass(frozen=True, kw_only=True)
class CreditQuality:
    """How accurate the credit of one method is.

    Attributes:
        fidelity: Spearman's correlation with each target of `TRUTHS`, with its interval over buckets; NaN if it is not
            defined, for the reason in `status`.
        variance: the variance of its credit, in squared units of the credit. VPR and outcome reward divide credit by a
            standard deviation.
    """

    method: str
    fidelity: Mapping[str, Interval]
    status: Mapping[str, str]
    variance: ContextVariance


@dataclass(frozen=True, kw_only=True)
class EventDiagnosis:
    """The results for the buckets of one event type, or of all.

    Attributes:
        event: the event type, or `ALL`.
        buckets: the number of buckets.
        candidates: the number of candidates in all buckets.
        alone: the number of buckets with fewer than two replayed candidates, where no credit can be compared.
        failed_replays: the number of failed replays, including those of value-only actions.
        mean_return: the mean V(h) at the drawn decisions; NaN without value-only actions. It is not the policy's
            return, as long episodes have more decisions.
        exact_error: the largest of `Bucket.exact_error`; NaN without any.
        credits: the result of each method that credits at least one candidate.
        influence: over the buckets with a response; `None` without any.
        influence_interval: the mean influence with its interval over buckets.
        chance: the mean influence after responses are shuffled, see `influence_by_chance`.
        failures: the number of buckets by failure category.
    """

    event: str
    buckets: int
    candidates: int
    alone: int
    failed_replays: int
    mean_return: Interval
    exact_error: float
    credits: tuple[CreditQuality, ...]
    influence: Influence | None
    influence_interval: Interval
    chance: float
    failures: Mapping[Failure, int]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The results for one policy.

    Attributes:
        events: all event types together if there are several, then each event type in order of occurrence.
        buckets: the buckets that were measured.
        success: greedy success and pass@k with intervals over tasks; empty if no attempts were played.
        about: settings as plain values: the model, the task, the plan.
        not_measured: methods that cannot credit these buckets, as without a critic, each with the reason.
    """

    name: str
    events: tuple[EventDiagnosis, ...]
    buckets: tuple[Bucket, ...]
    success: Mapping[str, Interval] = field(default_factory=dict)
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)


def diagnose(
    name: str,
    buckets: Sequence[Bucket],
    methods: Mapping[str, Method] | None = None,
    context: MethodContext | None = None,
    *,
    success: Mapping[str, Interval] | None = None,
    cost: Ledger | None = None,
    about: Mapping[str, Any] | None = None,
    credit_replays: int = 1,
) -> Diagnosis:
    """Measures credit, influence and failures on buckets.

    The batch of methods that compare across contexts (VPR, outcome reward) is the buckets of an event type.

    Args:
        buckets: as sampled.
        methods: the methods to measure, by the name to show; by default those of `standard_methods`.
        context: as in `assigned_credit`; wrap a critic in `RememberedValues`, since its inputs repeat.
        success, cost, about: stored in the result.
        credit_replays: for targets from other replays, the number of replays that credit is computed from.

    Raises:
        ValueError: there is no bucket.
    """
    if not buckets:
        raise ValueError("a diagnosis needs at least 1 bucket, got none; sample more episodes or other events.")
    groups = grouped(buckets, lambda bucket: bucket.event)
    found: dict[str, list[CreditQuality]] = {event: [] for event in groups}
    not_measured = {}
    for label, method in (standard_methods(buckets) if methods is None else methods).items():
        try:
            measured = {event: _credit(own, label, method, context, credit_replays) for event, own in groups.items()}
        except ValueError as error:
            not_measured[label] = str(error)
            *_, (frame, _) = walk_tb(error.__traceback__)
            if not frame.f_globals.get("__name__", "").startswith("hf_credit"):  # no refusal
                logger.error("%s is not measured, since it raised an error.", label, exc_info=error)
            continue
        for event, quality in measured.items():
            found[event] += [] if quality is None else [quality]
    return Diagnosis(
        name=name,
        events=tuple(_event(event, own, found[event]) for event, own in groups.items()),
        buckets=tuple(buckets),
        success=dict(success or {}),
        cost=cost or Ledger(),
        about=dict(about or {}),
        not_measured=not_measured,
    )


def grouped(items: Sequence[T], event: Callable[[T], str]) -> dict[str, list[T]]:
    """Returns the items by event type, and before these as `ALL` all of them, unless there is one event type."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(event(item), []).append(item)
    return groups if len(groups) == 1 else {ALL: list(items), **groups}


def _event(event: str, buckets: list[Bucket], credits: Sequence[CreditQuality]) -> EventDiagnosis:
    answered = [one for one in buckets if any(any(action.responses) for action in one.candidates)]
    responses = [[action.responses for action in bucket.candidates] for bucket in answered]
    found = influence(responses) if answered else None
    every = [action for bucket in buckets for action in (*bucket.candidates, *bucket.value_only)]
    returns = [bucket.value for bucket in buckets if bucket.value is not None]
    told = [value for value in found.by_bucket if not math.isnan(value)] if found else []
    return EventDiagnosis(
        event=event,
        buckets=len(buckets),
        candidates=sum(len(bucket.candidates) for bucket in buckets),
        alone=sum(len(bucket.replayed) < 2 for bucket in buckets),
        failed_replays=sum(action.failed for action in every),
        mean_return=mean_with_interval(returns, within=range_of("return", returns)),
        exact_error=max((one.exact_error for one in buckets if one.exact_error is not None), default=math.nan),
        credits=tuple(credits),
        influence=found,
        influence_interval=mean_with_interval(told, within=(0.0, math.inf)),
        chance=influence_by_chance(responses) if answered else math.nan,
        failures=dict(Counter(bucket.failure for bucket in buckets)),
    )


def _credit(
    buckets: list[Bucket], label: str, method: Method, context: MethodContext | None, credit_replays: int
) -> CreditQuality | None:
    """Measures the credit of a method; returns `None` if no candidate gets credit."""
    whole = assigned_credit(buckets, method, context)
    if all(math.isnan(credit) for own in whole for credit in own):
        return None
    kinds: dict[str, tuple[Truth, int | None]] = {"shared": ("estimated", None)}
    if max(len(action.returns) for bucket in buckets for action in bucket.candidates) > credit_replays:
        kinds["apart"] = ("estimated", credit_replays)
    if any(bucket.exact is not None for bucket in buckets):
        kinds |= {"exact": ("exact", None), "exact_first": ("exact", credit_replays)}
    first = assigned_credit(buckets, method, context, credit_replays) if len(kinds) > 1 else whole
    fidelity, status = {}, {}
    for kind, (truth, replays) in kinds.items():
        pairs = credit_and_targets(buckets, whole if replays is None else first, truth, replays)
        fidelity[kind] = fidelity_interval(*pairs)
        status[kind] = str(credit_fidelity(*pairs).status)
    known = [[credit for credit in own if not math.isnan(credit)] for own in whole]
    return CreditQuality(method=label, fidelity=fidelity, status=status, variance=context_variance(known))
