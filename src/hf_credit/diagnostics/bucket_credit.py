"""The credit that methods would give to the candidates of diagnostic buckets, beside what these were worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from hf_credit.collaborations.exact_values import exact_values
from hf_credit.credit import full_mean, leave_one_out, trajectory_advantages, turn_group_advantages
from hf_credit.diagnostics import Fidelity, credit_fidelity, fidelity_interval, target_advantages
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.evaluation.statistics import Interval
from hf_credit.rollouts import Chat, Interaction

Estimator = Callable[[Sequence[Bucket]], Sequence[Sequence[float]]]
"""Credit for each `replayed` candidate of each bucket, NaN where it has none."""

Truth = Literal["estimated", "exact"]


def leave_one_out_credit(buckets: Sequence[Bucket]) -> list[list[float]]:
    """C3: a candidate's mean return less that of the others, weighted by replays (eq. 15; Appendix I)."""
    return _split(buckets, leave_one_out(*_returns(buckets)).tolist())


def full_mean_credit(buckets: Sequence[Bucket]) -> list[list[float]]:
    """MAGRPO: a candidate's mean return less that of all candidates, itself included (eq. 26; Appendix I)."""
    return _split(buckets, full_mean(*_returns(buckets)).tolist())


def critic_credit(buckets: Sequence[Bucket]) -> list[list[float]]:
    """MAPPO: a candidate's mean return less what the critic says of the context (Appendix I); NaN without a critic."""
    return [
        [action.mean_return - (math.nan if bucket.critic is None else bucket.critic) for action in bucket.replayed]
        for bucket in buckets
    ]


def outcome_credit(buckets: Sequence[Bucket]) -> list[list[float]]:
    """Outcome reward: a candidate's mean return, normalised over all candidates of all buckets (paper VPR, eq. 1).

    The candidates are the batch: as in training, episodes from different tasks are one group.
    """
    returns, _, _ = _returns(buckets)
    return _split(buckets, trajectory_advantages(returns, torch.ones_like(returns, dtype=torch.bool)).tolist())


def verifier_credit(buckets: Sequence[Bucket]) -> list[list[float]]:
    """VPR: the oracle's verdict of a candidate, normalised over all candidates at the same turn (paper VPR, eq. 4).

    The candidates of all buckets are the batch, each a trajectory of which one turn is looked at; turns with fewer
    than 4 candidates take the batch's statistics. NaN where the oracle said nothing.
    """
    verdicts = [(bucket.turn, action.verdict) for bucket in buckets for action in bucket.replayed]
    if not verdicts:
        return _split(buckets, [])
    turns = sorted({turn for turn, _ in verdicts})
    rewards = torch.zeros(len(verdicts), len(turns), dtype=torch.float64)
    active = torch.zeros(len(verdicts), len(turns), dtype=torch.bool)
    for row, (turn, verdict) in enumerate(verdicts):
        if verdict is not None:
            rewards[row, turns.index(turn)] = verdict
            active[row, turns.index(turn)] = True
    advantages = turn_group_advantages(rewards, active).sum(dim=1).tolist()
    known = active.any(dim=1).tolist()
    return _split(
        buckets, [value if is_known else math.nan for value, is_known in zip(advantages, known, strict=True)]
    )


ESTIMATORS: dict[str, Estimator] = {
    "C3": leave_one_out_credit,
    "MAGRPO": full_mean_credit,
    "MAPPO": critic_credit,
    "VPR": verifier_credit,
    "outcome": outcome_credit,
}
"""By the name of the method."""


def estimators_of(buckets: Sequence[Bucket]) -> list[str]:
    """The names in `ESTIMATORS` that these buckets hold something for: a critic's values, an oracle's verdicts."""
    return [
        name
        for name, estimate in ESTIMATORS.items()
        if any(not math.isnan(credit) for own in estimate(buckets) for credit in own)
    ]


def assigned_credit(
    buckets: Sequence[Bucket], estimator: str | Estimator, replays: int | None = None
) -> list[list[float]]:
    """The credit of each `replayed` candidate of each bucket.

    Args:
        buckets: together the batch, where a method compares across contexts.
        estimator: one of `ESTIMATORS`, or a function of your own.
        replays: how many replays of each action the credit may look at, the first ones; all if `None`. Training has
            one or a few, while the truth is measured with many.

    Returns:
        NaN where a candidate has no credit: a critic or an oracle said nothing of it.

    Raises:
        ValueError: there is no such estimator, or a number is out of range.
    """
    seen = buckets if replays is None else [_first(bucket, replays) for bucket in buckets]
    return [[*own] for own in _estimator(estimator)(seen)]


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
    buckets: Sequence[Bucket], estimator: str | Estimator, truth: Truth = "estimated", replays: int | None = None
) -> Fidelity:
    """`credit_fidelity` of a method's credit on buckets.

    By default credit and target are made of the same returns, as in Appendix I. A baseline that the candidates of a
    bucket share then keeps their order, right inside every bucket: what is measured is how well the baselines of
    different contexts agree. With `replays`, credit is made of the first replays and the target of the others, so that
    the noise of the one is not that of the other; against exact values the target has none.

    Args:
        buckets, estimator, replays: as in `assigned_credit`.
        truth: as in `bucket_targets`.

    Returns:
        Of the candidates that have a credit and a target.

    Raises:
        ValueError: as `assigned_credit` and `bucket_targets`.
    """
    return credit_fidelity(*_known(buckets, estimator, truth, replays))


def bucket_fidelity_interval(
    buckets: Sequence[Bucket],
    estimator: str | Estimator,
    truth: Truth = "estimated",
    replays: int | None = None,
    resamples: int = 1_000,
) -> Interval:
    """`bucket_fidelity` with the 95% bootstrap interval over buckets of `fidelity_interval`."""
    return fidelity_interval(*_known(buckets, estimator, truth, replays), resamples=resamples)


def with_exact_values(
    buckets: Sequence[Bucket],
    interaction: Interaction[Any],
    chat: Chat,
    model: PreTrainedModel,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    floor: float = 0.0,
) -> list[Bucket]:
    """The same buckets with the true value of each context and candidate, by enumeration of all replies.

    For policies and replies so small that it can be done: see `hf_credit.collaborations.exact_values`.

    Args:
        buckets: as sampled; from a file they have no state to start from.
        interaction, chat, model: the buckets were sampled with.
        max_new_tokens, temperature, floor: as in `exact_values`; the limit and the temperature of the sampler, which
            must draw from the whole vocabulary.

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
    options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "floor": floor}
    found = exact_values(interaction, chat, model, states, **options) if states else []  # type: ignore[arg-type]
    return [
        replace(
            bucket,
            exact=values.value,
            candidates=tuple(replace(one, exact=values.values.get(one.text)) for one in bucket.candidates),
            value_only=tuple(replace(one, exact=values.values.get(one.text)) for one in bucket.value_only),
        )
        for bucket, values in zip(buckets, found, strict=True)
    ]


def _known(
    buckets: Sequence[Bucket], estimator: str | Estimator, truth: Truth, replays: int | None
) -> tuple[list[list[float]], list[list[float]]]:
    """Credits and targets of the candidates that have both."""
    credits = assigned_credit(buckets, estimator, replays)
    targets = bucket_targets(buckets, truth, 0 if truth == "exact" or replays is None else replays)
    pairs = [
        [pair for pair in zip(own, theirs, strict=True) if not any(map(math.isnan, pair))]
        for own, theirs in zip(credits, targets, strict=True)
    ]
    return [[a for a, _ in own] for own in pairs], [[b for _, b in own] for own in pairs]


def _target(bucket: Bucket, action: Action, truth: Truth, skip: int) -> float:
    if truth == "exact":
        return math.nan if action.exact is None or bucket.exact is None else action.exact - bucket.exact
    left = action.returns[skip:]
    values = [other.returns for other in bucket.value_only if other.returns]
    return float(target_advantages([left], values)[0]) if left and values else math.nan


def _estimator(estimator: str | Estimator) -> Estimator:
    if not isinstance(estimator, str):
        return estimator
    if estimator not in ESTIMATORS:
        raise ValueError(f"an estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}; pick one.")
    return ESTIMATORS[estimator]


def _first(bucket: Bucket, replays: int) -> Bucket:
    if replays < 1:
        raise ValueError(f"credit needs at least 1 replay of each action, got {replays}; raise it.")
    cut = tuple(replace(action, returns=action.returns[:replays]) for action in bucket.candidates)
    return replace(bucket, candidates=cut)


def _returns(buckets: Sequence[Bucket]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean return of every replayed candidate, its bucket and its replays."""
    every = [(place, action) for place, bucket in enumerate(buckets) for action in bucket.replayed]
    return (
        torch.tensor([action.mean_return for _, action in every], dtype=torch.float64),
        torch.tensor([place for place, _ in every], dtype=torch.long),
        torch.tensor([len(action.returns) for _, action in every], dtype=torch.long),
    )


def _split(buckets: Sequence[Bucket], values: Sequence[float]) -> list[list[float]]:
    rest = iter(values)
    return [[next(rest) for _ in bucket.replayed] for bucket in buckets]
