"""The credit that methods give to the candidates of diagnostic buckets, beside what these were worth.

Credit is that of the method's own estimator, the one that training uses: from the candidates and their replays an
update is made up as if the method's collector had played it.
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
from hf_credit.methods.base import one_number
from hf_credit.rollouts import Chat, Decision, Ending, Episode, Interaction, Verdict
from hf_credit.rollouts.method_context import CriticInput, LocalContext, MethodContext

Truth = Literal["estimated", "exact"]


class OnlyInTrainingError(ValueError):
    """A method credits what only its own collector plays, so that buckets cannot be credited with it."""


@dataclass(frozen=True, kw_only=True)
class BucketBatch(RolloutBatch):
    """Buckets as an update that was played: an instance each, and an episode for each replay of each candidate.

    An episode holds the decisions before the bucket's, the candidate, and what followed in the replay. Replays of a
    candidate share the decision, as episodes do that split after it. Only what came after the decisions before the
    bucket's own was judged by the oracle: those are the same in all of its episodes and would count once for each.

    Attributes:
        candidates: of each bucket, the id of the decision of each `replayed` candidate.
    """

    candidates: tuple[tuple[str, ...], ...] = field(default=())

    def of_kind(self, kind: str) -> tuple[Rollout, ...]:
        """As in `RolloutBatch`.

        Raises:
            OnlyInTrainingError: buckets hold nothing of this kind.
        """
        found = super().of_kind(kind)
        if self.rollouts and not found:
            raise OnlyInTrainingError(
                f"credit of buckets must come from replays of their candidates, got a method that asks for rollouts "
                f"of kind {kind!r}, which only its own collector plays; diagnose it on the credit of training."
            )
        return found


def collected_from(buckets: Sequence[Bucket]) -> BucketBatch:
    """The update that `BucketBatch` describes.

    Args:
        buckets: together the batch, where a method compares across contexts. Where one holds no replays but only
            returns, each is an episode that ends with the candidate.
    """
    rollouts: list[Rollout] = []
    candidates: list[tuple[str, ...]] = []
    for number, bucket in enumerate(buckets):
        before = _before(bucket, number)
        own = []
        for place, action in enumerate(bucket.replayed):
            name = f"bucket {number} candidate {place}"
            own.append(name)
            for replay, episode in enumerate(action.replays or _made_up(bucket, action)):
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
        candidates.append(tuple(own))
    return BucketBatch(rollouts=tuple(rollouts), rows=len(buckets), candidates=tuple(candidates))


class RememberedValues:
    """A critic for `LocalContext` that is asked once for each text: the replays of a bucket share most of theirs.

    Args:
        critic: says the values at the places of inputs, and learns nothing meanwhile.
        batch: how many texts it is asked about at once.
    """

    def __init__(
        self, critic: Callable[[Sequence[CriticInput]], Sequence[tuple[float, ...]]], batch: int = 256
    ) -> None:
        self._critic = critic
        self._batch = batch
        self._known: dict[CriticInput, tuple[float, ...]] = {}

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        new = [reading for reading in dict.fromkeys(inputs) if reading not in self._known]
        new.sort(key=lambda reading: len(reading.ids))  # texts of one length need no padding
        for first in range(0, len(new), self._batch):
            part = new[first : first + self._batch]
            self._known.update(zip(part, self._critic(part), strict=True))
        return [self._known[reading] for reading in inputs]


def assigned_credit(
    buckets: Sequence[Bucket],
    method: Method | str,
    context: MethodContext | None = None,
    replays: int | None = None,
    memory: Any = None,
) -> list[list[float]]:
    """The credit of each `replayed` candidate of each bucket, by the method's estimator.

    Where the estimator credits every replay of a candidate, its credit is the mean over them; where it credits single
    tokens, the mean over these.

    Args:
        buckets: together the batch, where a method compares across contexts.
        method: a `Method`, or the name of one with its default options.
        context: has the critics that the method asks; without one it can have none.
        replays: how many replays of each candidate the credit may look at, the first ones; all if `None`. Training has
            one or a few, while the truth is measured with many.
        memory: what the method remembers of earlier updates; as before the first one if `None`.

    Returns:
        NaN where a candidate gets no credit: it is alone at its context, no oracle judged it.

    Raises:
        OnlyInTrainingError: the estimator asks for rollouts that only the method's own collector plays, or for a
            critic where a bucket holds no replays to read.
        ValueError: there is no such method, no such critic, or a number is out of range.
    """
    method = methods.make(method) if isinstance(method, str) else method
    seen = buckets if replays is None else [_first(bucket, replays) for bucket in buckets]
    if method.critics and any(not action.replays for bucket in seen for action in bucket.replayed):
        raise OnlyInTrainingError(
            f"a method with a critic must have replays to read, got buckets without for {method.name!r}; sample them "
            "again."
        )
    collected = collected_from(seen)
    if not collected.rollouts:
        return [[] for _ in buckets]
    credit = method.estimator(collected, context or LocalContext(), method.memory if memory is None else memory)
    credits = [[one_number(credit.decisions.get(name)) for name in names] for names in collected.candidates]
    return [[math.nan if one is None else one for one in of_bucket] for of_bucket in credits]


def standard_methods(buckets: Sequence[Bucket], trained: Method | None = None) -> dict[str, Method]:
    """The methods whose credit is of interest on any buckets, by name.

    C3's and MAGRPO's, VPR's where an oracle judged candidates, outcome reward's, and that which the policy was trained
    with.
    """
    names = ["replay_loo", "magrpo"]
    judged = any(action.verdict is not None for bucket in buckets for action in bucket.candidates)
    names += [*(["verifiable_process"] if judged else []), "outcome_reward"]
    found = {} if trained is None else {trained.name: trained}
    return {**found, **{name: methods.make(name) for name in names if name not in found}}


def bucket_targets(buckets: Sequence[Bucket], truth: Truth = "estimated", skip: int = 0) -> list[list[float]]:
    """What each `replayed` candidate was worth beyond the policy's mean at its context (Appendix I; eq. 20).

    Args:
        buckets: whose candidates.
        truth: `"estimated"` from replays and value-only actions; `"exact"` as enumerated by `with_exact_values`.
        skip: leaves out the first replays of each candidate, which credit was made of. Value-only actions keep all.

    Returns:
        NaN where it is not known: no value-only action, no replay left, or not enumerated.

    Raises:
        ValueError: there is no such truth, or `skip` is negative.
    """
    if truth not in ("estimated", "exact") or skip < 0:
        raise ValueError(
            f"a target needs a truth of 'estimated' or 'exact' and skip >= 0, got {truth!r} and {skip}; correct it."
        )
    return [[_target(bucket, action, truth, skip) for action in bucket.replayed] for bucket in buckets]


def bucket_fidelity(
    buckets: Sequence[Bucket],
    method: Method | str,
    truth: Truth = "estimated",
    replays: int | None = None,
    context: MethodContext | None = None,
) -> Fidelity:
    """`credit_fidelity` of a method's credit on buckets.

    By default credit and target are made of the same returns, as in Appendix I. A baseline that the candidates of a
    bucket share then keeps their order, right inside every bucket: what is measured is how well the baselines of
    different contexts agree. With `replays`, credit is made of the first replays and the target of the others, so that
    the noise of the one is not that of the other; against exact values the target has none.

    Args:
        buckets, method, replays, context: as in `assigned_credit`.
        truth: as in `bucket_targets`.

    Returns:
        Of the candidates that have a credit and a target.

    Raises:
        ValueError: as `assigned_credit` and `bucket_targets`.
    """
    credits = assigned_credit(buckets, method, context, replays)
    targets = bucket_targets(buckets, truth, 0 if truth == "exact" or replays is None else replays)
    return credit_fidelity(*known_pairs(credits, targets))


def known_pairs(
    credits: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]
) -> tuple[list[list[float]], list[list[float]]]:
    """Both without the candidates of which one is NaN."""
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
    *,
    max_new_tokens: int,
    **options: Any,
) -> list[Bucket]:
    """The same buckets with the true value of each context and candidate, by enumeration of all replies.

    For policies and replies so small that it can be done: see `hf_credit.collaborations.exact_values`.

    Args:
        buckets: as sampled; from a file they have no state to start from.
        interaction, chat, model: the buckets were sampled with.
        max_new_tokens, **options: the limit, `temperature` and `floor` of `exact_values`; limit and temperature are
            those of the sampler, which must draw from the whole vocabulary.

    Returns:
        A reply whose probability is below the floor keeps `exact=None`.

    Raises:
        ValueError: a bucket has no state, or as `exact_values`.
    """
    for bucket in buckets:
        if bucket.state is None:
            raise ValueError(
                "exact values need the replay state of a bucket, got one without, as files hold none; sample it again."
            )
    states = [bucket.state for bucket in buckets]
    found = exact_values(interaction, chat, model, states, max_new_tokens=max_new_tokens, **options) if states else []
    valued = []
    for bucket, values in zip(buckets, found, strict=True):
        actions: dict[str, Any] = {
            name: tuple(replace(one, exact=values.values.get(one.text)) for one in getattr(bucket, name))
            for name in ("candidates", "value_only")
        }
        valued.append(replace(bucket, exact=values.value, **actions))
    return valued


def _target(bucket: Bucket, action: Action, truth: Truth, skip: int) -> float:
    if truth == "exact":
        return math.nan if action.exact is None or bucket.exact is None else action.exact - bucket.exact
    left = action.returns[skip:]
    values = [other.returns for other in bucket.value_only if other.returns]
    return float(target_advantages([left], values)[0]) if left and values else math.nan


def _first(bucket: Bucket, replays: int) -> Bucket:
    if replays < 1:
        raise ValueError(f"credit needs at least 1 replay of each action, got {replays}; raise it.")
    cut = tuple(
        replace(action, returns=action.returns[:replays], replays=action.replays[:replays])
        for action in bucket.candidates
    )
    return replace(bucket, candidates=cut)


def _before(bucket: Bucket, number: int) -> list[Decision]:
    """The decisions before the bucket's own, under names that no other bucket has: they may be of one episode, whose
    decisions another bucket's candidates are."""
    kept = any(action.replays for action in bucket.replayed)
    before = bucket.before if kept else [_made_up_decision(bucket, turn) for turn in range(bucket.turn)]
    return [replace(one, id=f"bucket {number} before {turn}", verdict=None) for turn, one in enumerate(before)]


def _made_up(bucket: Bucket, action: Action) -> list[Episode]:
    """An episode for each return, of the candidate alone."""
    verdict = None if action.verdict is None else Verdict(score=action.verdict, valid=action.verdict > 0)
    decision = _made_up_decision(bucket, bucket.turn, action.text, verdict)
    return [Episode(decisions=(decision,), outcome=value, ending=Ending.FINISHED) for value in action.returns]


def _made_up_decision(bucket: Bucket, turn: int, text: str = "", verdict: Verdict | None = None) -> Decision:
    """At a context that no other turn has."""
    return Decision(
        role=bucket.role,
        event=bucket.event,
        state=None,
        context_ids=(turn,),
        action_ids=(),
        logprobs=None,
        action_text=text,
        verdict=verdict,
    )
