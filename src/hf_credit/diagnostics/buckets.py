"""Diagnostic buckets: a decision at a fixed context, its alternatives, and their replays (paper C3, Appendix I).

They contain whole replays, so the estimator of any method can credit the candidates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from hf_credit.diagnostics.taxonomy import Failure, failure_category
from hf_credit.rollouts import Decision, Episode


@dataclass(frozen=True, kw_only=True)
class Action:
    """A reply at the context of a bucket, and the results of its replays.

    Attributes:
        returns: the outcome of each replay without error, in order.
        numbers: of each return, which replay it is of, from 0; empty for 0, 1, 2, ...
        responses: for the same replays, the first message of the teammate downstream, that is, the next message of
            another event type; `None` if the episode ended before.
        failed: the number of replays that ended in an error; they have neither return nor response.
        draws: how often the policy drew this reply, among the real one and the first draws, as many as the plan has
            candidates. Later draws, until there are enough different ones, would favour rare replies.
        verdict: the oracle's score at the bucket's state, in [0, 1]; `None` without an oracle or if it failed.
        exact: Q(h, a), the exact value under the policy (eq. 17); `None` if it was not enumerated.
        replays: the episodes of `returns`, from the step of the decision on; only for candidates.
    """

    text: str
    returns: tuple[float, ...] = ()
    numbers: tuple[int, ...] = ()
    responses: tuple[str | None, ...] = ()
    failed: int = 0
    draws: int = 1
    verdict: float | None = None
    exact: float | None = None
    replays: tuple[Episode, ...] = field(default=(), compare=False, repr=False)

    @property
    def by_replay(self) -> dict[int, float]:
        """The returns by the number of their replay."""
        return dict(zip(self.numbers or range(len(self.returns)), self.returns, strict=False))

    @property
    def mean_return(self) -> float:
        """The estimate of Q(h, a), the mean of the returns (eq. 11).

        Raises:
            StatisticsError: every replay failed.
        """
        return fmean(self.returns)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A decision and its alternatives at the same context.

    Attributes:
        event: the event type of the decision.
        key: the key of the context (Appendix C).
        task: the index of its task among the starts.
        turn: the number of earlier decisions in its episode.
        candidates: different replies, each drawn from the policy; the first is the real one.
        value_only: further replies from the policy, which may repeat; they only estimate the baseline V(h).
        exact: V(h), the exact value of the context under the policy (eq. 19); `None` if it was not enumerated.
        exact_error: the largest error of the exact values of the context and the candidates; `None` without any.
        before: the decisions of its episode in earlier steps.
        state: the state before the decision.
    """

    event: str
    role: str
    key: int
    context: str
    task: int
    turn: int
    candidates: tuple[Action, ...]
    value_only: tuple[Action, ...] = ()
    exact: float | None = None
    exact_error: float | None = None
    before: tuple[Decision, ...] = field(default=(), compare=False, repr=False)
    state: Any = field(default=None, compare=False, repr=False)

    @property
    def real(self) -> Action:
        """The reply of the episode."""
        return self.candidates[0]

    @property
    def replayed(self) -> tuple[Action, ...]:
        """The candidates with at least one return; only these can be compared."""
        return tuple(action for action in self.candidates if action.returns)

    @property
    def best(self) -> Action | None:
        """The candidate with the highest mean return, the first of equal ones; `None` if every replay failed."""
        return max(self.replayed, key=lambda action: action.mean_return, default=None)

    @property
    def value(self) -> float | None:
        """The estimate of V(h), the mean return of all replays of value-only actions; `None` without any."""
        returns = [value for action in self.value_only for value in action.returns]
        return fmean(returns) if returns else None

    @property
    def failure(self) -> Failure:
        """The failure category of the bucket (Appendix N)."""
        return failure_category([action.returns for action in self.candidates])

    def to_json(self) -> str:
        """Writes the texts and the numbers of the bucket as one line of JSON, without states and replays."""
        values: dict[str, Any] = {name: value for name, value in vars(self).items() if name not in ("before", "state")}
        for name in ("candidates", "value_only"):
            values[name] = [
                {one: value for one, value in vars(action).items() if one != "replays"} for action in values[name]
            ]
        return json.dumps(values, separators=(",", ":"))
