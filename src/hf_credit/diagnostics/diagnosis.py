"""What buckets say of a policy and of the credit that methods would give it, all in one value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_credit.diagnostics import (
    ContextVariance,
    Failure,
    Influence,
    context_variance,
    influence,
    influence_by_chance,
)
from hf_credit.diagnostics.bucket_credit import (
    Truth,
    assigned_credit,
    bucket_fidelity,
    bucket_fidelity_interval,
    estimators_of,
)
from hf_credit.diagnostics.buckets import Bucket
from hf_credit.evaluation.statistics import Interval, mean_interval
from hf_credit.rollouts import Ledger

TRUTHS = {
    "shared": "same returns",
    "apart": "other replays",
    "exact": "exact",
    "exact_first": "exact, first replays",
}
"""What credit is held against, and how people call it."""

ALL = "all events"


@dataclass(frozen=True, kw_only=True)
class CreditQuality:
    """How good the credit of one method is.

    Attributes:
        estimator: the method.
        fidelity: Spearman's correlation with its interval over buckets, by what of `TRUTHS` it is held against; NaN
            where it is not defined, and then `status` says why.
        status: of each fidelity.
        variance: of its credit, in the unit of its credit: VPR and outcome reward divide by a standard deviation.
    """

    estimator: str
    fidelity: Mapping[str, Interval]
    status: Mapping[str, str]
    variance: ContextVariance


@dataclass(frozen=True, kw_only=True)
class EventDiagnosis:
    """What the buckets of one event type say, or those of all.

    Attributes:
        event: the event type, or `ALL`.
        buckets: how many.
        candidates: how many different actions they hold, over all buckets.
        alone: buckets with fewer than two candidates that were replayed, which say nothing of credit.
        failed_replays: of all actions, value-only ones too.
        mean_return: of the value-only actions over buckets, an estimate of what the policy returns here; NaN without.
        credits: a row for each method that has something to say.
        influence: over the buckets that somebody answered; `None` where nobody did, as nobody comes after.
        influence_interval: its mean over buckets.
        chance: what influence would be found if there were none.
        failures: buckets by category.
    """

    event: str
    buckets: int
    candidates: int
    alone: int
    failed_replays: int
    mean_return: Interval
    credits: tuple[CreditQuality, ...]
    influence: Influence | None
    influence_interval: Interval
    chance: float
    failures: Mapping[Failure, int]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found of one policy.

    Attributes:
        name: of the policy.
        events: all together first where there are several, then each event type in the order in which it came up.
        buckets: what it was found on.
        success: greedy and pass@k with intervals over tasks, where the policy was played for them.
        cost: of it all.
        about: plain values for the reader: the model, the task, the plan.
    """

    name: str
    events: tuple[EventDiagnosis, ...]
    buckets: tuple[Bucket, ...]
    success: Mapping[str, Interval] = field(default_factory=dict)
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)


def diagnose(
    name: str,
    buckets: Sequence[Bucket],
    *,
    success: Mapping[str, Interval] | None = None,
    cost: Ledger | None = None,
    about: Mapping[str, Any] | None = None,
    credit_replays: int = 1,
    resamples: int = 1_000,
) -> Diagnosis:
    """Measures everything that these buckets can say.

    Credit that compares across contexts (VPR, outcome reward) takes the buckets of the event type as its batch.

    Args:
        name: of the policy.
        buckets: as sampled, or from a file.
        success, cost, about: kept with the result.
        credit_replays: where credit is held against a target of other replays, how many of them make the credit.
        resamples: of the intervals.

    Raises:
        ValueError: there is no bucket, or a number is out of range.
    """
    if not buckets:
        raise ValueError("a diagnosis needs at least 1 bucket, got none; sample more episodes or other events.")
    events = list(dict.fromkeys(bucket.event for bucket in buckets))
    groups = {ALL: list(buckets)} if len(events) > 1 else {}
    groups |= {event: [bucket for bucket in buckets if bucket.event == event] for event in events}
    return Diagnosis(
        name=name,
        events=tuple(_event(event, own, credit_replays, resamples) for event, own in groups.items()),
        buckets=tuple(buckets),
        success=dict(success or {}),
        cost=cost or Ledger(),
        about=dict(about or {}),
    )


def mean_with_interval(values: Sequence[float]) -> Interval:
    """`mean_interval` where there may be too little for one: of one value the ends are NaN, of none all is."""
    if len(values) > 1:
        return mean_interval(values)
    mean = values[0] if values else math.nan
    return Interval(mean=mean, low=math.nan, high=math.nan, confidence=0.95, n=len(values))


def _event(event: str, buckets: list[Bucket], credit_replays: int, resamples: int) -> EventDiagnosis:
    answered = [bucket for bucket in buckets if any(_said(bucket))]
    responses = [[action.responses for action in bucket.candidates] for bucket in answered]
    found = influence(responses) if answered else None
    every = [action for bucket in buckets for action in (*bucket.candidates, *bucket.value_only)]
    return EventDiagnosis(
        event=event,
        buckets=len(buckets),
        candidates=sum(len(bucket.candidates) for bucket in buckets),
        alone=sum(len(bucket.replayed) < 2 for bucket in buckets),
        failed_replays=sum(action.failed for action in every),
        mean_return=mean_with_interval([bucket.value for bucket in buckets if bucket.value is not None]),
        credits=tuple(_credit(buckets, estimator, credit_replays, resamples) for estimator in estimators_of(buckets)),
        influence=found,
        influence_interval=mean_with_interval([v for v in found.by_bucket if not math.isnan(v)] if found else []),
        chance=influence_by_chance(responses) if answered else math.nan,
        failures=dict(Counter(bucket.failure for bucket in buckets)),
    )


def _said(bucket: Bucket) -> list[str]:
    return [said for action in bucket.candidates for said in action.responses if said is not None]


def _credit(buckets: list[Bucket], estimator: str, credit_replays: int, resamples: int) -> CreditQuality:
    ways: dict[str, tuple[Truth, int | None]] = {"shared": ("estimated", None)}
    if max(len(action.returns) for bucket in buckets for action in bucket.candidates) > credit_replays:
        ways["apart"] = ("estimated", credit_replays)
    if any(bucket.exact is not None for bucket in buckets):
        ways |= {"exact": ("exact", None), "exact_first": ("exact", credit_replays)}
    credits = [[value for value in own if not math.isnan(value)] for own in assigned_credit(buckets, estimator)]
    return CreditQuality(
        estimator=estimator,
        fidelity={
            way: bucket_fidelity_interval(buckets, estimator, truth, replays, resamples)
            for way, (truth, replays) in ways.items()
        },
        status={
            way: str(bucket_fidelity(buckets, estimator, truth, replays).status)
            for way, (truth, replays) in ways.items()
        },
        variance=context_variance(credits),
    )
