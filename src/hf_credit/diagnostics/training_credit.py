"""Compares the credit of a training update with the advantages of its decisions.

In contrast to buckets, the method plays with its own collector, as in training. The credit of its estimator is
compared with replays or exact values of the same decisions. This works for every method, with or without a trainer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collectors import RolloutBatch
from hf_credit.collectors.base import TaskRow
from hf_credit.diagnostics.bucket_credit import bucket_targets
from hf_credit.diagnostics.bucket_sampling import BucketPlan, decision_buckets
from hf_credit.diagnostics.diagnosis import grouped
from hf_credit.diagnostics.fidelity import credit_fidelity, rank_correlations
from hf_credit.diagnostics.variance import ContextVariance, context_variance
from hf_credit.environments.randomness import stream
from hf_credit.evaluation.statistics import Interval, clustered_interval
from hf_credit.methods import Credit, Method
from hf_credit.rollouts import Chat, Decision, Engine, Episode, Interaction, Ledger, by_episode, replay_from
from hf_credit.rollouts.method_context import LocalContext
from hf_credit.rollouts.rows import one_number


@dataclass(frozen=True, kw_only=True)
class TrainedDecision:
    """A decision with credit.

    Attributes:
        instance: the index of its task among the rows.
        credit: its credit; the mean over tokens if tokens have their own.
    """

    episode: Episode
    index: int
    instance: int
    credit: float

    @property
    def decision(self) -> Decision:
        return self.episode.decisions[self.index]


def credited_decisions(collected: RolloutBatch, credit: Credit) -> list[TrainedDecision]:
    """Returns the decisions of an update with credit, in order.

    Args:
        collected: the rollouts of the update, as passed to `CreditCallback.on_credit`.
        credit: the result of the method's estimator.
    """
    return [
        TrainedDecision(episode=sample.episode, index=index, instance=sample.instance, credit=value)
        for sample, credits in zip(collected.trained, by_episode(collected.episodes, credit.decisions), strict=True)
        for index, value in enumerate(map(one_number, credits))
        if value is not None
    ]


@dataclass(frozen=True, kw_only=True)
class TrainingCredit:
    """How accurate the credit of one event type is, or of all.

    Attributes:
        event: the event type, or `ALL`.
        credited: the number of decisions with credit.
        measured: the number of these with a known advantage.
        zeros: the share of credits that are 0, from which nothing is learned.
        fidelity: Spearman's correlation of credit and advantage over all measured decisions, with its interval over
            instances; NaN if it is not defined, for the reason in `status`.
        squared_error: the mean of (credit - advantage)^2, with its interval over instances. Credit that is divided by
            a standard deviation has another unit. An estimated advantage adds the noise of its replays.
        variance: the variance of credits of decisions at the same context.
    """

    event: str
    credited: int
    measured: int
    zeros: float
    fidelity: Interval
    status: str
    squared_error: Interval
    variance: ContextVariance


@dataclass(frozen=True, kw_only=True)
class TrainingDiagnosis:
    """The results for the credit of one method in one update of one policy.

    Attributes:
        events: all event types together if there are several, then each event type.
        decisions: the number of decisions of the update.
        unreplayed: the number of drawn decisions that could not be replayed, since their episode does not contain the
            start of their conversation.
        cost: the cost of the update and of the replays.
    """

    name: str
    method: str
    events: tuple[TrainingCredit, ...]
    decisions: int
    unreplayed: int = 0
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)


Advantages = Callable[[Sequence[TrainedDecision]], Sequence[float]]
"""Returns the advantage of each decision, in the unit of the reward; NaN if it is not known."""


def training_credit(
    method: Method,
    context: LocalContext,
    rows: Sequence[TaskRow],
    plan: BucketPlan | None = None,
    *,
    name: str = "policy",
    exact: Advantages | None = None,
    about: Mapping[str, Any] | None = None,
) -> TrainingDiagnosis:
    """Plays one update with a method, credits it, and compares the credit with the advantages of its decisions.

    Args:
        method: plays and credits the update.
        context: plays with the policy, and provides the critics that the method needs.
        rows: the task rows of the update. Methods that compare across tasks depend on their number, which is
            `instances_per_update` in training.
        plan: the number of decisions to draw (`buckets`) and their `events`, the replays of each (`replays`), and the
            further replies at its context for the baseline (`value_actions`), each replayed as often.
        exact: computes exact advantages instead of replays: see `exact_advantages`.

    Raises:
        ValueError: the method does not fit the Interaction or needs a trainer, there are no value-only actions, or no
            decision of `plan.events` has credit.
    """
    plan = plan or BucketPlan()
    if context.engine is None:
        raise ValueError("the credit of training needs a context with an engine, got none; pass an engine.")
    if exact is None and not plan.value_actions:
        raise ValueError("value_actions must be at least 1 for the baseline of replays, got 0; raise it.")
    method = method.bind(context.interaction)
    spent = context.ledger
    collected = method.collector(rows, context, method.memory)
    found = credited_decisions(collected, method.estimator(collected, context, method.memory))
    events = list(dict.fromkeys(one.decision.event for one in found))
    if plan.events and not set(plan.events) & set(events):
        raise ValueError(
            f"an event of a diagnosis must have credit, got {', '.join(plan.events)}; those with credit are "
            f"{', '.join(events) or 'none'}."
        )
    found = [one for one in found if not plan.events or one.decision.event in plan.events]
    drawn = sorted(stream(plan.seed, "training credit").sample(range(len(found)), min(plan.buckets, len(found))))
    sound = [place for place in drawn if exact or _can_be_replayed(context.engine, found[place])]
    asked = [found[place] for place in sound]
    values, cost = (exact(asked), Ledger()) if exact else replayed_advantages(context.engine, asked, plan)
    known = dict(zip(sound, values, strict=True))
    targets = [known.get(place, math.nan) for place in range(len(found))]
    return TrainingDiagnosis(
        name=name,
        method=method.name,
        events=by_event(found, targets),
        decisions=len({decision.id for episode in collected.episodes for decision in episode.decisions}),
        unreplayed=len(drawn) - len(sound),
        cost=context.ledger - spent + cost,
        about=dict(about or {}),
    )


def by_event(decisions: Sequence[TrainedDecision], targets: Sequence[float]) -> tuple[TrainingCredit, ...]:
    """Computes `credit_quality` for all decisions together, if several event types occur, and for each of these."""
    pairs = list(zip(decisions, targets, strict=True))
    return tuple(
        credit_quality(event, [one for one, _ in own], [target for _, target in own])
        for event, own in grouped(pairs, lambda pair: pair[0].decision.event).items()
    )


def credit_quality(
    event: str, decisions: Sequence[TrainedDecision], targets: Sequence[float], resamples: int = 1_000
) -> TrainingCredit:
    """Compares the credit of decisions with their advantages.

    Args:
        decisions: the decisions with their credit.
        targets: the advantage of each; NaN if it is not known.
        resamples: the number of bootstrap resamples of the intervals; 0 computes none.
    """
    known = [(one, target) for one, target in zip(decisions, targets, strict=True) if not math.isnan(target)]
    pairs = np.array([(one.credit, target) for one, target in known], dtype=np.float64).reshape(-1, 2)
    by_instance, by_context = defaultdict(list), defaultdict(list)
    for place, (one, _) in enumerate(known):
        by_instance[one.instance].append(place)
    for one in decisions:
        by_context[one.decision.event, one.decision.context_ids].append(one.credit)
    # A single cluster is not resampled.
    clusters = [pairs[places] for places in by_instance.values()] if known and resamples else [pairs]
    fidelity, squared = (
        replace(clustered_interval(clusters, measure, resamples=max(resamples, 1)), n=len(by_instance))
        for measure in (rank_correlations, _squared_errors)
    )
    # One pool, as buckets would omit decisions that are the only one at their context.
    status = credit_fidelity([pairs[:, 0].tolist()], [pairs[:, 1].tolist()]).status
    return TrainingCredit(
        event=event,
        credited=len(decisions),
        measured=len(known),
        zeros=sum(one.credit == 0 for one in decisions) / len(decisions) if decisions else math.nan,
        fidelity=fidelity,
        status=str(status),
        squared_error=squared,
        variance=context_variance(list(by_context.values())),
    )


def replayed_advantages(
    engine: Engine[Any], decisions: Sequence[TrainedDecision], plan: BucketPlan
) -> tuple[list[float], Ledger]:
    """Estimates the advantages of decisions, and the cost, by replays of them and of value-only actions.

    An advantage is NaN if every replay failed.

    Args:
        engine: plays with the policy that made the decisions.
        plan: as in `decision_buckets`.
    """
    buckets, places, cost = decision_buckets(engine, [(one.episode, one.index) for one in decisions], plan)
    values = {
        (place, action.text): target
        for place, (bucket, own) in enumerate(zip(buckets, bucket_targets(buckets), strict=True))
        for action, target in zip(bucket.replayed, own, strict=True)
    }
    keys = zip(places, (one.decision.action_text for one in decisions), strict=True)
    return [values.get(key, math.nan) for key in keys], cost


def exact_advantages(
    interaction: Interaction[Any],
    chat: Chat,
    model: PreTrainedModel,
    decisions: Sequence[TrainedDecision],
    **limits: Any,
) -> list[float]:
    """Computes exact advantages (paper C3, eq. 20) by enumeration, for small policies and short replies.

    The advantage of a reply with a probability below the floor is NaN.

    Args:
        interaction, chat, model: as in `hf_credit.collaborations.exact_values.exact_values`. The model keeps its
            training or evaluation mode.
        **limits: as for `exact_values`.

    Raises:
        ValueError: as `exact_values`.
    """
    states = list(dict.fromkeys(one.decision.state for one in decisions))
    values = exact_values(interaction, chat, model, states, **limits) if states else []
    found = dict(zip(states, values, strict=True))
    known = [(found[one.decision.state], one.decision.action_text) for one in decisions]
    return [value.advantage(text) if text in value.values else math.nan for value, text in known]


def _can_be_replayed(engine: Engine[Any], one: TrainedDecision) -> bool:
    """Returns whether a decision can be replayed: an episode from a recorded state lacks the earlier conversation."""
    try:
        replay_from(engine.interaction, engine.chat, one.episode, one.index)
    except ValueError:
        return False
    return True


def _squared_errors(pairs: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean squared difference in each resample, as `rank_correlations`."""
    with np.errstate(invalid="ignore"):
        return counts @ np.square(pairs[:, 0] - pairs[:, 1]) / counts.sum(axis=1)
