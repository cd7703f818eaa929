"""The credit that methods assign to the candidates of diagnostic buckets, and the target advantages of these.

The credit comes from the estimator that the method trains with. The candidates and their replays are passed to it as
an update that the method's collector could have played.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.diagnostics.fidelity import Fidelity, credit_fidelity, target_advantages
from hf_credit.methods import Method
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Chat, Interaction
from hf_credit.rollouts.method_context import CriticInput, LocalContext, MethodContext
from hf_credit.rollouts.rows import one_number

Truth = Literal["estimated", "exact"]


@dataclass(frozen=True, kw_only=True)
class BucketBatch(RolloutBatch):
    """Buckets as an update: one instance per bucket, and one episode per replay of each candidate.

    An episode contains the decisions before the bucket, the candidate, and the decisions of the replay. Replays of a
    candidate share its decision, like episodes that fork after it. The decisions before the bucket have no verdict:
    they are the same in all its episodes and would count once per episode.

    Attributes:
        candidates: for each bucket, the decision id of each `replayed` candidate.
    """

    candidates: tuple[tuple[str, ...], ...] = field(default=())

    def of_kind(self, kind: str) -> tuple[Rollout, ...]:
        """As in `RolloutBatch`.

        Raises:
            ValueError: buckets contain no rollouts of this kind.
        """
        found = super().of_kind(kind)
        if self.rollouts and not found:
            raise ValueError(
                f"credit of buckets must come from replays of their candidates, got a method that needs rollouts of "
                f"kind {kind!r}, which only its own collector plays; diagnose it with --protocol training."
            )
        return found


def collected_from(buckets: Sequence[Bucket]) -> BucketBatch:
    """Builds an update from buckets.

    Args:
        buckets: the batch, for methods that compare across contexts.
    """
    rollouts: list[Rollout] = []
    candidates: list[tuple[str, ...]] = []
    for number, bucket in enumerate(buckets):
        # New ids, as they may be candidates of another bucket.
        before = [
            replace(one, id=f"bucket {number} before {turn}", verdict=None) for turn, one in enumerate(bucket.before)
        ]
        names = []
        for place, action in enumerate(bucket.replayed):
            name = f"bucket {number} candidate {place}"
            names.append(name)
            for replay, episode in enumerate(action.replays):
                decisions = list(episode.decisions)
                forced = next(turn for turn, decision in enumerate(decisions) if decision.event == bucket.event)
                decisions[forced] = replace(decisions[forced], id=name)
                shared = forced + 1 if replay and not forced else 0
                first = not place and not replay
                whole = replace(
                    episode,
                    decisions=(*before, *decisions),
                    start=number,
                    branch=(place, replay),
                    prefix_length=0 if first else len(before) + shared,
                )
                rollouts.append(Rollout(episode=whole, instance=number))
        candidates.append(tuple(names))
    return BucketBatch(rollouts=tuple(rollouts), rows=len(buckets), candidates=tuple(candidates))


class RememberedValues:
    """A critic for `LocalContext` that caches predictions, since the replays of a bucket share most of their inputs.

    Args:
        critic: predicts values at positions of inputs; it must not learn meanwhile.
        batch: the maximum number of inputs per call.
    """

    def __init__(
        self, critic: Callable[[Sequence[CriticInput]], Sequence[tuple[float, ...]]], batch: int = 256
    ) -> None:
        self._critic = critic
        self._batch = batch
        self._known: dict[CriticInput, tuple[float, ...]] = {}

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        new = [reading for reading in dict.fromkeys(inputs) if reading not in self._known]
        new.sort(key=lambda reading: len(reading.ids))  # inputs of equal length need no padding
        for first in range(0, len(new), self._batch):
            part = new[first : first + self._batch]
            self._known.update(zip(part, self._critic(part), strict=True))
        return [self._known[reading] for reading in inputs]


def assigned_credit(
    buckets: Sequence[Bucket], method: Method | str, context: MethodContext | None = None, replays: int | None = None
) -> list[list[float]]:
    """Computes the credit of each `replayed` candidate of each bucket with the method's estimator.

    Credits of single replays or tokens are averaged per candidate.

    Args:
        buckets: the batch, for methods that compare across contexts.
        method: a `Method`, or the name of a method with default options.
        context: provides critics, if the method needs them.
        replays: the number of replays of each candidate that credit is computed from, the first ones; all if `None`.
            Training has one or a few, while target advantages need many.

    Returns:
        For each bucket, the credit of each candidate; NaN for a candidate without credit, for example if it is the
        only one at its context or no oracle judged it.

    Raises:
        ValueError: the method or the critic does not exist, the estimator needs rollouts that only the method's own
            collector plays, or a number is out of range.
    """
    method = methods.make(method) if isinstance(method, str) else method
    seen = buckets if replays is None else [_first(bucket, replays) for bucket in buckets]
    collected = collected_from(seen)
    if not collected.rollouts:
        return [[] for _ in buckets]
    credit = method.estimator(collected, context or LocalContext(), method.memory)
    credits = [[one_number(credit.decisions.get(name)) for name in names] for names in collected.candidates]
    return [[math.nan if one is None else one for one in of_bucket] for of_bucket in credits]


def standard_methods(
    buckets: Sequence[Bucket], trained: Method | None = None, oracle: Oracle[Any] | None = None
) -> dict[str, Method]:
    """Returns the methods to compare by default, by name.

    These are the method that the policy was trained with, C3, MAGRPO, outcome reward, and VPR if an oracle judged
    candidates: the default one of the task if `oracle` is `None`.
    """
    judged = any(action.verdict is not None for bucket in buckets for action in bucket.candidates)
    names = ["replay_loo", "magrpo", *(["verifiable_process"] if judged else []), "outcome_reward"]
    options = {"verifiable_process": {} if oracle is None else {"oracle": oracle}}
    found = {} if trained is None else {trained.name: trained}
    return found | {name: methods.make(name, **options.get(name, {})) for name in names if name not in found}


def bucket_targets(buckets: Sequence[Bucket], truth: Truth = "estimated", skip: int = 0) -> list[list[float]]:
    """Returns the target advantage Q(h, a) - V(h) of each `replayed` candidate (paper C3, Appendix I; eq. 20).

    Args:
        truth: `"estimated"` from replays and value-only actions, or `"exact"` as enumerated by `with_exact_values`.
        skip: the number of first replays of each candidate to omit, since credit was computed from them. They are
            omitted for all actions of a bucket: with common random numbers their luck is in the credit.

    Returns:
        For each bucket, the target of each candidate, in the unit of the outcome; NaN if it is unknown: there is no
        value-only action, no replay is left, or it was not enumerated.

    Raises:
        ValueError: `truth` is unknown, or `skip` is negative.
    """
    if truth not in ("estimated", "exact") or skip < 0:
        raise ValueError(
            f"targets need truth 'estimated' or 'exact' and skip >= 0, got {truth!r} and {skip}; correct them."
        )
    return [[_target(bucket, action, truth, skip) for action in bucket.replayed] for bucket in buckets]


def bucket_fidelity(
    buckets: Sequence[Bucket],
    method: Method | str,
    truth: Truth = "estimated",
    replays: int | None = None,
    context: MethodContext | None = None,
) -> Fidelity:
    """Computes the `credit_fidelity` of a method on buckets, over the candidates with a credit and a target.

    By default credit and targets use the same returns, as in paper C3, Appendix I. A baseline that the candidates of a
    bucket share does not change their order, so the result measures how well the baselines of different contexts
    agree. With `replays`, credit uses the first replays, and targets, with their baseline, the others, so their noise
    is independent. Exact targets have no noise.

    Args:
        buckets, method, replays, context: as in `assigned_credit`.
        truth: as in `bucket_targets`.

    Raises:
        ValueError: as `assigned_credit` and `bucket_targets`.
    """
    credits = assigned_credit(buckets, method, context, replays)
    return credit_fidelity(*credit_and_targets(buckets, credits, truth, replays))


def credit_and_targets(
    buckets: Sequence[Bucket], credits: Sequence[Sequence[float]], truth: Truth, replays: int | None = None
) -> tuple[list[list[float]], list[list[float]]]:
    """Returns credits and their targets, without candidates that lack one.

    Args:
        credits: from `assigned_credit`.
        truth: as in `bucket_targets`.
        replays: the number of replays that credit was computed from; estimated targets use the others. All use all
            if `None`.
    """
    targets = bucket_targets(buckets, truth, 0 if truth == "exact" or replays is None else replays)
    pairs = [
        [pair for pair in zip(own, theirs, strict=True) if not any(map(math.isnan, pair))]
        for own, theirs in zip(credits, targets, strict=True)
    ]
    return [[a for a, _ in own] for own in pairs], [[b for _, b in own] for own in pairs]


def with_exact_values(
    buckets: Sequence[Bucket],
    interaction: Interaction[Any],
    chat: Chat,
    model: PreTrainedModel,
    **limits: Any,
) -> list[Bucket]:
    """Adds the exact value of each context and candidate, by enumeration of all replies.

    This is feasible only for small policies and short replies: see `hf_credit.collaborations.exact_values`.

    Args:
        buckets: as sampled.
        interaction, chat, model: those that sampled the buckets.
        **limits: as for `exact_values`.

    Returns:
        The buckets with exact values; replies with a probability below the floor keep `exact=None`. `exact_error` is
        the largest error of an advantage, as the floor leaves out later replies.

    Raises:
        ValueError: as `exact_values`.
    """
    states = [bucket.state for bucket in buckets]
    found = exact_values(interaction, chat, model, states, **limits) if states else []
    valued = []
    for bucket, values in zip(buckets, found, strict=True):
        actions: dict[str, Any] = {
            name: tuple(replace(one, exact=values.values.get(one.text)) for one in getattr(bucket, name))
            for name in ("candidates", "value_only")
        }
        known = [one.text for one in bucket.candidates if one.text in values.values]
        error = max(map(values.error_of, known), default=None)
        valued.append(replace(bucket, exact=values.value, exact_error=error, **actions))
    return valued


def _target(bucket: Bucket, action: Action, truth: Truth, skip: int) -> float:
    if truth == "exact":
        return math.nan if action.exact is None or bucket.exact is None else action.exact - bucket.exact
    used = {number for one in bucket.candidates for number in [*one.by_replay][:skip]}
    left, *values = (
        [value for number, value in one.by_replay.items() if number not in used]
        for one in (action, *bucket.value_only)
    )
    values = [own for own in values if own]
    return float(target_advantages([left], values)[0]) if left and values else math.nan


def _first(bucket: Bucket, replays: int) -> Bucket:
    if replays < 1:
        raise ValueError(f"credit needs at least 1 replay per action, got {replays}; raise it.")
    cut = tuple(
        replace(action, returns=action.returns[:replays], replays=action.replays[:replays])
        for action in bucket.candidates
    )
    return replace(bucket, candidates=cut)
