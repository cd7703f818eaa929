"""What buckets say of a policy and of the credit that methods would give it, all in one value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_credit.diagnostics.bucket_credit import (
    OnlyInTrainingError,
    Truth,
    assigned_credit,
    bucket_targets,
    known_pairs,
    standard_methods,
)
from hf_credit.diagnostics.buckets import Bucket
from hf_credit.diagnostics.fidelity import credit_fidelity, fidelity_interval
from hf_credit.diagnostics.influence import Influence, influence, influence_by_chance
from hf_credit.diagnostics.taxonomy import Failure
from hf_credit.diagnostics.variance import ContextVariance, context_variance
from hf_credit.evaluation.statistics import Interval, mean_with_interval
from hf_credit.methods import Method
from hf_credit.rollouts import Ledger
from hf_credit.rollouts.method_context import MethodContext

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
        method: its name.
        fidelity: Spearman's correlation with its interval over buckets, by what of `TRUTHS` it is held against; NaN
            where it is not defined, and then `status` says why.
        status: of each fidelity.
        variance: of its credit, in the unit of its credit: VPR and outcome reward divide by a standard deviation.
    """

    method: str
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
        not_measured: methods that buckets cannot be credited with, and why, in one sentence each.
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
    """Measures everything that these buckets can say.

    Credit that compares across contexts (VPR, outcome reward) takes the buckets of the event type as its batch.

    Args:
        name: of the policy.
        buckets: as sampled, or from a file.
        methods: whose credit to measure, by the name to show; those of `standard_methods` if `None`.
        context: as in `assigned_credit`; give it `RememberedValues` around a critic, which is asked the same many
            times.
        success, cost, about: kept with the result.
        credit_replays: where credit is held against a target of other replays, how many of them make the credit.

    Raises:
        ValueError: there is no bucket, or a number is out of range.
    """
    if not buckets:
        raise ValueError("a diagnosis needs at least 1 bucket, got none; sample more episodes or other events.")
    events = list(dict.fromkeys(bucket.event for bucket in buckets))
    groups = {ALL: list(buckets)} if len(events) > 1 else {}
    groups |= {event: [bucket for bucket in buckets if bucket.event == event] for event in events}
    found: dict[str, list[CreditQuality]] = {event: [] for event in groups}
    not_measured = {}
    for label, method in (standard_methods(buckets) if methods is None else methods).items():
        try:
            measured = {event: _credit(own, label, method, context, credit_replays) for event, own in groups.items()}
        except OnlyInTrainingError as error:
            not_measured[label] = str(error)
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


def _event(event: str, buckets: list[Bucket], credits: Sequence[CreditQuality]) -> EventDiagnosis:
    answered = [bucket for bucket in buckets if any(_responses(bucket))]
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
        credits=tuple(credits),
        influence=found,
        influence_interval=mean_with_interval([v for v in found.by_bucket if not math.isnan(v)] if found else []),
        chance=influence_by_chance(responses) if answered else math.nan,
        failures=dict(Counter(bucket.failure for bucket in buckets)),
    )


def _responses(bucket: Bucket) -> list[str]:
    return [response for action in bucket.candidates for response in action.responses if response is not None]


def _credit(
    buckets: list[Bucket], label: str, method: Method, context: MethodContext | None, credit_replays: int
) -> CreditQuality | None:
    """`None` where no candidate gets credit."""
    whole = assigned_credit(buckets, method, context)
    if all(math.isnan(credit) for own in whole for credit in own):
        return None
    ways: dict[str, tuple[Truth, int | None]] = {"shared": ("estimated", None)}
    if max(len(action.returns) for bucket in buckets for action in bucket.candidates) > credit_replays:
        ways["apart"] = ("estimated", credit_replays)
    if any(bucket.exact is not None for bucket in buckets):
        ways |= {"exact": ("exact", None), "exact_first": ("exact", credit_replays)}
    first = assigned_credit(buckets, method, context, credit_replays) if len(ways) > 1 else whole
    fidelity, status = {}, {}
    for way, (truth, replays) in ways.items():
        targets = bucket_targets(buckets, truth, 0 if truth == "exact" or replays is None else replays)
        pairs = known_pairs(whole if replays is None else first, targets)
        fidelity[way] = fidelity_interval(*pairs)
        status[way] = str(credit_fidelity(*pairs).status)
    known = [[credit for credit in own if not math.isnan(credit)] for own in whole]
    return CreditQuality(method=label, fidelity=fidelity, status=status, variance=context_variance(known))
