"""Whether an oracle's verdicts can be trusted at a policy: measured against executed replays of its moves."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hf_credit.diagnostics.bucket_sampling import BucketPlan, diagnostic_buckets
from hf_credit.diagnostics.fidelity import Array, fidelity_interval
from hf_credit.diagnostics.policy import Subject
from hf_credit.evaluation.statistics import SHARE, Interval, mean_interval, mean_with_interval
from hf_credit.oracles import Oracle
from hf_credit.oracles.base import ACCEPTED_ABOVE
from hf_credit.rollouts import Ledger, RolloutRequest, verify

LINE = Interval(mean=0.96, low=0.83, high=1.2, confidence=0.95, n=10)
"""Verdicts pay if the oracle errs less than so many times as often as a policy that shares its parameters: the line of
CreditBench (`docs/which-method.md`) with its interval, as a test holds."""
_BINS = 5


@dataclass(frozen=True, kw_only=True)
class VerdictDiagnosis:
    """How far an oracle's verdicts on the moves of a policy agree with replays of them.

    Q[a] is the worth of a move, its expected return under the policy, and v[a] its score. In each state, best and
    worst are the extremes of Q, and pi[a] is the share of the policy's draws. Sums are over states, and over pairs a,
    b of different moves, or over moves a weighted by pi[a]:

        accuracy  = sum |Q[a] - Q[b]| (1[v orders a, b as Q] + 1/2 1[v[a] = v[b]]) / sum |Q[a] - Q[b]|
        own_error = sum (best - Q[a]) / sum (best - worst)
        error     = sum (best - Q[a] if v[a] > 1/2 else Q[a] - worst) / sum (best - worst)

    With two values in a state these are shares of pairs in order, of wrong moves and of wrong verdicts, weighted by
    what is at stake. Extremes and |Q[a] - Q[b]| are too large if the same replays choose and measure them, and too
    small if each replay is measured by what the others choose; with more replays both tend to the truth. An interval
    spans those of both, over tasks; its mean is in their middle.

    Attributes:
        tied: the share of pairs with equal scores.
        margin: `LINE.mean` times what the policy's errors cost a task, minus what the oracle's would, in units of
            outcome.
        agreement: Spearman's correlation of v and Q - mean Q over all moves. Noise of replays lowers it.
        reliability: for the scores of each fifth of [0, 1] their mean, the share of right moves, that is, sum
            (Q[a] - worst) / sum (best - worst) over them, and their number.
        unknown: the number of moves that are omitted: those without a verdict or with a failed replay, and the others
            of their state if fewer than two are left, or none that the policy drew.
        price: the mean cost of a verdict, by name, such as seconds and tokens.
    """

    accuracy: Interval
    tied: float
    error: Interval
    own_error: Interval
    margin: Interval
    agreement: Interval
    reliability: Sequence[tuple[float, Interval, int]]
    name: str = ""
    unknown: int = 0
    price: Mapping[str, float] = field(default_factory=dict)
    cost: Ledger = field(default_factory=Ledger)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pays(self) -> bool | None:
        """Whether verdicts pay; `None` if that cannot be told."""
        return self.margin.low > 0 if self.margin.low > 0 or self.margin.high < 0 else None

    @property
    def note(self) -> str:
        """Whether verdicts pay, in a sentence."""
        if self.pays is None:
            few = f"{self.name}: {self.cost.scoring_events:,} replays do not tell whether verdicts pay"
            return f"{few}; raise --buckets or --replays."
        said = f"{self.name}: verdicts {'' if self.pays else 'may not '}pay: the oracle errs"
        ratio = self.error.mean / max(self.own_error.mean, 1e-3)
        line = f"{LINE.mean:g} [{LINE.low:g}, {LINE.high:g}]"
        return f"{said} {ratio:.2g} times as often as the policy, and the line is at {line}."


def trust(states: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike, int]], seed: int = 0) -> VerdictDiagnosis:
    """Compares verdicts with replays.

    Args:
        states: of each the outcomes of replays of different moves, of shape (moves, replays), at least 2 by 2; the
            score of each move, in [0, 1]; how often the policy drew it, not 0 for all; and the task.
        seed: of the bootstrap of the agreement.
    """
    by_task: dict[int, Any] = defaultdict(int)
    scores, advantages = list[Any](), list[Any]()
    for *numbers, task in states:
        returns, said, draws = (np.asarray(one, dtype=np.float64) for one in numbers)
        by_task[task] += _sums(returns, said, draws / draws.sum())
        scores.append(said)
        advantages.append(returns.mean(axis=1) - draws @ returns.mean(axis=1) / draws.sum())
    ordered, apart, error, own_error, reach, equal, pairs, *bins = np.stack([*by_task.values()], axis=-1)
    judged = np.concatenate(scores)
    inside = [judged[_bin(judged) == k] for k in range(_BINS)]
    return VerdictDiagnosis(
        accuracy=_spanned(map(_share, ordered, apart)),
        tied=float(equal.sum() / pairs.sum()),
        error=_spanned(map(_share, error, reach)),
        own_error=_spanned(map(_share, own_error, reach)),
        margin=_spanned(map(mean_with_interval, (LINE.mean * own_error - error).tolist())),
        agreement=fidelity_interval(scores, advantages, seed=seed),
        reliability=[
            (float(own.mean()), _spanned(map(_share, *parts)), len(own))
            for own, *parts in zip(inside, bins[::2], bins[1::2], strict=True)
            if len(own)
        ],
    )


def diagnose_verdicts(
    subject: Subject, starts: Sequence[RolloutRequest[Any]], plan: BucketPlan, oracle: Oracle[Any]
) -> VerdictDiagnosis:
    """Replays several moves of a policy at sampled decisions, and compares an oracle's verdicts on them.

    Args:
        starts: the tasks, one start each.
        plan: with at least 2 candidates and 2 replays; value-only actions are not drawn.
        oracle: judges each move once.

    Raises:
        ValueError: no two moves of a state are judged, or as `diagnostic_buckets`.
    """
    if min(numbers := (plan.candidates, plan.replays)) < 2:
        raise ValueError(f"verdicts need at least 2 candidates and 2 replays, got {numbers}; raise them.")
    buckets, cost = diagnostic_buckets(subject.engine, starts, replace(plan, value_actions=0))
    moves = [(k, one) for k, bucket in enumerate(buckets) for one in bucket.candidates]
    sound = [(k, one) for k, one in moves if len(one.returns) == plan.replays]
    forced = [next(own for own in one.replays[0].decisions if own.event == buckets[k].event) for k, one in sound]
    asked = [replace(one.replays[0], decisions=(own,)) for (_, one), own in zip(sound, forced, strict=True)]
    begun, costs = time.perf_counter(), Counter[str]()
    verified = verify(asked, oracle, subject.engine.interaction, costs=costs)
    spent = {"seconds": time.perf_counter() - begun, **costs}
    price = {name: one / max(len(asked), 1) for name, one in spent.items() if name not in ("known", "unknown")}
    cost += Ledger(others={"judge": costs["tokens"]} if costs["tokens"] else {})
    judged = defaultdict[int, list[Any]](list)
    for (k, one), episode in zip(sound, verified, strict=True):
        if (verdict := episode.decisions[0].verdict) is not None:
            judged[k].append((one.returns, verdict.score, one.draws))
    kept = {k: own for k, own in judged.items() if len(own) > 1 and any(draws for *_, draws in own)}
    states: Any = [(*zip(*own, strict=True), buckets[k].task) for k, own in kept.items()]
    if not states:
        raise ValueError(
            f"verdicts need states with two judged moves, one of them drawn, got none of {len(buckets)}; draw more."
        )
    found: dict[str, Any] = {"name": subject.name, "price": price, "cost": cost, "about": subject.about}
    return replace(trust(states, plan.seed), unknown=len(moves) - sum(map(len, kept.values())), **found)


def _sums(returns: Array, scores: Array, pi: Array) -> Array:
    """Returns the sums of a state: |Q[a] - Q[b]| in order and of all, what the oracle's and the policy's errors cost,
    best - worst, pairs with equal scores and all, and two for each bin; each by replays that the others choose, and by
    the same."""
    worth = returns.mean(axis=1)
    others = (returns.sum(axis=1, keepdims=True) - returns) / (returns.shape[1] - 1)

    def best_of(sign: int) -> Array:
        chosen = np.isclose(sign * others, (sign * others).max(axis=0))
        return np.array([((returns * chosen).sum(axis=0) / chosen.sum(axis=0)).mean(), sign * (sign * worth).max()])

    best, worst = best_of(1), best_of(-1)
    lost, over = best[:, None] - worth, worth - worst[:, None]
    a, b = np.triu_indices(len(worth), 1)
    told = np.sign(np.round(others[a] - others[b], 9))
    apart = np.array([(told * (returns[a] - returns[b])).mean(axis=1).sum(), np.abs(worth[a] - worth[b]).sum()])
    along = (np.sign(scores[a] - scores[b]) * (worth[a] - worth[b])).sum()
    error, pairs = np.where(scores > ACCEPTED_ABOVE, lost, over) @ pi, np.ones(2)
    inside = [pi * (_bin(scores) == k) for k in range(_BINS)]
    bins = [part for own in inside for part in (over @ own, (best - worst) * own.sum())]
    equal = pairs * (scores[a] == scores[b]).sum()
    return np.array([(apart + along) / 2, apart, error, lost @ pi, best - worst, equal, pairs * len(a), *bins])


def _bin(scores: Array) -> Array:
    return np.minimum(np.floor(scores * _BINS), _BINS - 1)


def _share(parts: Array, wholes: Array) -> Interval:
    """Returns Student's interval of m = sum p / sum w over tasks, by the linear approximation m + (p - m w) / mean w.
    It contains those of 0 and 1 in (sum w)^2 / sum w^2 tasks, as a rare error may be in none of few tasks."""
    total, n = float(wholes.sum()), len(wholes)
    if n < 2 or total < 1e-9:
        return Interval(mean=np.nan, low=0.0, high=1.0, confidence=0.95, n=n)
    m = float(parts.sum()) / total
    found = mean_interval(m + (parts - m * wholes) * n / total)
    rare = mean_interval([0.0] * max(round(total**2 / float((wholes**2).sum())), 2), within=SHARE).high
    low, mean, high = np.clip([min(found.low, 1 - rare), m, max(found.high, rare)], 0, 1).tolist()
    return replace(found, low=low, mean=mean, high=high)


def _spanned(intervals: Iterable[Interval]) -> Interval:
    a, b = intervals
    return replace(a, mean=(a.mean + b.mean) / 2, low=min(a.low, b.low), high=max(a.high, b.high))
