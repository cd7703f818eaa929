"""The credit that an update of training gives, beside what the decisions were worth.

Buckets ask what a method says of candidates that were laid out for it. Here the method plays as it does in training,
with its own collector, and what its estimator gives is held against replays or enumeration of the same decisions. It
works for every method, with a trainer or without one.
"""

from __future__ import annotations

import math
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
from hf_credit.diagnostics.diagnosis import ALL
from hf_credit.diagnostics.fidelity import credit_fidelity, rank_correlations
from hf_credit.diagnostics.variance import ContextVariance, context_variance
from hf_credit.environments.randomness import stream
from hf_credit.evaluation.statistics import Interval, clustered_interval
from hf_credit.methods import Credit, Method
from hf_credit.methods.base import one_number
from hf_credit.rollouts import Chat, Decision, Engine, Episode, Interaction, Ledger, by_episode, replay_from
from hf_credit.rollouts.method_context import LocalContext


@dataclass(frozen=True, kw_only=True)
class TrainedDecision:
    """A decision of an update that is trained on.

    Attributes:
        episode: that holds it.
        index: its place there.
        instance: the place of its task among the rows.
        credit: what it was given; the mean over its tokens, where each has its own.
    """

    episode: Episode
    index: int
    instance: int
    credit: float

    @property
    def decision(self) -> Decision:
        return self.episode.decisions[self.index]


def credited_decisions(collected: RolloutBatch, credit: Credit) -> list[TrainedDecision]:
    """The decisions of an update that got credit, in order.

    Args:
        collected: what was played, as `CreditCallback.on_credit` is shown it.
        credit: what the method's estimator gave.
    """
    return [
        TrainedDecision(episode=sample.episode, index=index, instance=sample.instance, credit=value)
        for sample, credits in zip(collected.trained, by_episode(collected.episodes, credit.decisions), strict=True)
        for index, value in enumerate(map(one_number, credits))
        if value is not None
    ]


@dataclass(frozen=True, kw_only=True)
class TrainingCredit:
    """How good the credit of one event type is, or of all.

    Attributes:
        event: the event type, or `ALL`.
        credited: how many decisions got credit.
        measured: of how many it is known what they were worth.
        zeros: the share of credits that are 0: of these nothing is learnt.
        fidelity: Spearman's correlation of credit and advantage over the pool of all measured decisions, with its
            interval over instances; NaN where it is not defined, and then `status` says why.
        status: of the fidelity.
        squared_error: the mean of (credit - advantage)^2, with its interval over instances. Credit that was divided by
            a standard deviation has another unit; an advantage that was estimated adds the noise of its replays.
        variance: of credits among the decisions at one context.
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
    """What was found of the credit of one method in one update of one policy.

    Attributes:
        name: of the policy.
        method: as shown.
        events: all together first where there are several, then each event type.
        decisions: how many were made that might have got credit.
        unreplayed: how many of those drawn could not be replayed, as what their conversation began with is not in
            their episode.
        cost: of the update and of the replays.
        about: plain values for the reader.
    """

    name: str
    method: str
    events: tuple[TrainingCredit, ...]
    decisions: int
    unreplayed: int = 0
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)


Advantages = Callable[[Sequence[TrainedDecision]], Sequence[float]]
"""What each decision was worth beyond the policy's mean at its context, in the unit of the reward; NaN: not known."""


def training_credit(
    method: Method,
    context: LocalContext,
    rows: Sequence[TaskRow],
    plan: BucketPlan | None = None,
    *,
    name: str = "policy",
    exact: Advantages | None = None,
    memory: Any = None,
    about: Mapping[str, Any] | None = None,
) -> TrainingDiagnosis:
    """Plays one update as the method does, credits it, and measures what decisions of it were worth.

    Args:
        method: whose credit.
        context: plays, with the policy that is looked at, and has the critics that the method asks.
        rows: the task rows of the update. Methods that compare across tasks depend on how many there are; training
            has `instances_per_update`.
        plan: how many credited decisions to draw (`buckets`), of which `events`, how often to replay each (`replays`)
            and how many further replies at its context make the baseline (`value_actions`, each as often).
        name: of the policy.
        exact: what decisions were worth, where it can be known, in place of replays: see `exact_advantages`.
        memory: what the method remembers of earlier updates; as before the first one if `None`.
        about: kept with the result.

    Raises:
        ValueError: the method does not fit the Interaction or needs what a context without a trainer has not, there
            are no value-only actions, or an event type got no credit, in one sentence.
    """
    plan = plan or BucketPlan()
    if context.engine is None:
        raise ValueError("the credit of training needs an engine to play with, got none; give the context one.")
    if exact is None and not plan.value_actions:
        raise ValueError("replays of decisions need value_actions of at least 1 as their baseline, got 0; raise it.")
    method = method.bind(context.interaction)
    memory = method.memory if memory is None else memory
    spent = context.ledger
    collected = method.collector(rows, context, memory)
    found = credited_decisions(collected, method.estimator(collected, context, memory))
    events = list(dict.fromkeys(one.decision.event for one in found))
    if plan.events and not set(plan.events) & set(events):
        raise ValueError(
            f"an event of a diagnosis must get credit, got {', '.join(plan.events)} where "
            f"{', '.join(events) or 'nothing'} did; name one of these."
        )
    found = [one for one in found if not plan.events or one.decision.event in plan.events]
    drawn = sorted(stream(plan.seed, "training credit").sample(range(len(found)), min(plan.buckets, len(found))))
    targets = [math.nan] * len(found)
    unreplayed = 0
    cost = Ledger()
    if exact is not None:
        for place, value in zip(drawn, exact([found[place] for place in drawn]), strict=True):
            targets[place] = value
    else:
        sound = [place for place in drawn if _can_be_replayed(context.engine, found[place])]
        unreplayed = len(drawn) - len(sound)
        values, cost = replayed_advantages(context.engine, [found[place] for place in sound], plan)
        for place, value in zip(sound, values, strict=True):
            targets[place] = value
    return TrainingDiagnosis(
        name=name,
        method=method.name,
        events=by_event(found, targets),
        decisions=len({decision.id for episode in collected.episodes for decision in episode.decisions}),
        unreplayed=unreplayed,
        cost=_difference(context.ledger, spent) + cost,
        about=dict(about or {}),
    )


def by_event(decisions: Sequence[TrainedDecision], targets: Sequence[float]) -> tuple[TrainingCredit, ...]:
    """`credit_quality` of all together, where there are several event types, and of each.

    Args:
        decisions, targets: as in `credit_quality`.
    """
    events = list(dict.fromkeys(one.decision.event for one in decisions))
    pairs = list(zip(decisions, targets, strict=True))
    groups = {ALL: pairs} if len(events) != 1 else {}
    groups |= {event: [pair for pair in pairs if pair[0].decision.event == event] for event in events}
    return tuple(
        credit_quality(event, [one for one, _ in own], [target for _, target in own]) for event, own in groups.items()
    )


def credit_quality(
    event: str, decisions: Sequence[TrainedDecision], targets: Sequence[float], resamples: int = 1_000
) -> TrainingCredit:
    """How good the credit of some decisions is.

    Args:
        event: how to call them.
        decisions: with their credit.
        targets: what each was worth beyond the policy's mean at its context; NaN where it is not known.
        resamples: of the intervals; 0 makes none.
    """
    known = [(one, target) for one, target in zip(decisions, targets, strict=True) if not math.isnan(target)]
    by_instance: dict[int, list[tuple[float, float]]] = {}
    for one, target in known:
        by_instance.setdefault(one.instance, []).append((one.credit, target))
    by_context: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for one in decisions:
        by_context.setdefault((one.decision.event, one.decision.context_ids), []).append(one.credit)
    instances = [np.asarray(pairs, dtype=np.float64) for pairs in by_instance.values()]
    pool = np.concatenate(instances) if instances else np.zeros((0, 2))
    clusters = instances if instances and resamples else [pool]  # of one cluster there are no draws
    fidelity, squared = (
        replace(clustered_interval(clusters, measure, resamples=max(resamples, 1)), n=len(instances))
        for measure in (rank_correlations, _squared_errors)
    )
    # One pool: "buckets" would leave those out that stand alone at their context.
    status = credit_fidelity([[one.credit for one, _ in known]], [[target for _, target in known]]).status
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
    """What decisions were worth, by fresh replays of them and of value-only actions at their contexts.

    Args:
        engine: plays, with the policy that decided.
        decisions: to be measured.
        plan: as for `decision_buckets`.

    Returns:
        The advantages, NaN where every replay failed, and what they cost.
    """
    buckets, places, cost = decision_buckets(engine, [(one.episode, one.index) for one in decisions], plan)
    values = [
        dict(zip((action.text for action in bucket.replayed), own, strict=True))
        for bucket, own in zip(buckets, bucket_targets(buckets), strict=True)
    ]
    pairs = zip(places, decisions, strict=True)
    return [values[place].get(one.decision.action_text, math.nan) for place, one in pairs], cost


def exact_advantages(
    interaction: Interaction[Any],
    chat: Chat,
    model: PreTrainedModel,
    decisions: Sequence[TrainedDecision],
    *,
    max_new_tokens: int,
    **options: Any,
) -> list[float]:
    """What decisions were worth, by enumeration of all replies: for policies and replies so small that it can be done.

    Args:
        interaction, chat, model: as in `hf_credit.collaborations.exact_values.exact_values`. The model is left in the
            mode it was in.
        decisions: to be measured.
        max_new_tokens, **options: the limit, `temperature` and `floor`, likewise.

    Returns:
        The advantages (paper C3, eq. 20), NaN for a reply less probable than the floor.

    Raises:
        ValueError: as `exact_values`.
    """
    states = list(dict.fromkeys(one.decision.state for one in decisions))
    was_training = model.training
    options["max_new_tokens"] = max_new_tokens
    values = exact_values(interaction, chat, model, states, **options) if states else []
    found = dict(zip(states, values, strict=True))
    model.train(was_training)
    return [
        found[one.decision.state].advantage(one.decision.action_text)
        if one.decision.action_text in found[one.decision.state].values
        else math.nan
        for one in decisions
    ]


def _can_be_replayed(engine: Engine[Any], one: TrainedDecision) -> bool:
    """An episode that began at a recorded state knows no conversation from before it."""
    try:
        replay_from(engine.interaction, engine.chat, one.episode, one.index)
    except ValueError:
        return False
    return True


def _difference(after: Ledger, before: Ledger) -> Ledger:
    return Ledger(
        scoring_events=after.scoring_events - before.scoring_events,
        prompt_tokens=after.prompt_tokens - before.prompt_tokens,
        completion_tokens=after.completion_tokens - before.completion_tokens,
        decisions={role: count - before.decisions.get(role, 0) for role, count in after.decisions.items()},
        role_tokens={role: count - before.role_tokens.get(role, 0) for role, count in after.role_tokens.items()},
        counterfactual_tokens=after.counterfactual_tokens - before.counterfactual_tokens,
    )


def _squared_errors(pairs: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean squared difference in each resample, as `rank_correlations`."""
    with np.errstate(invalid="ignore"):
        return counts @ np.square(pairs[:, 0] - pairs[:, 1]) / counts.sum(axis=1)
