"""Diagnostic buckets: a decision at a fixed context, its alternatives, and their replays (paper C3, Appendix I).

Buckets consist of plain values, so files of them can be read and measured again without sampling. They contain whole
replays, so the estimator of any method can credit the candidates.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_credit.diagnostics.taxonomy import Failure, failure_category
from hf_credit.files import write
from hf_credit.rollouts import Decision, Ending, Episode, Verdict
from hf_credit.safe_io import parse_json, read_text

_KEPT = ("role", "event", "step", "action_ids", "logprobs", "action_text", "reward")
_MAX_BYTES = 2**32  # of a file of buckets with replays
_MAX_TOKENS = 2**26  # of all contexts of a bucket; a file contains only the new tokens of each


@dataclass(frozen=True, kw_only=True)
class Action:
    """A reply at the context of a bucket, and the results of its replays.

    Attributes:
        returns: the outcome of each replay without error, in order.
        responses: for the same replays, the first message of the teammate downstream, that is, the next message of
            another event type; `None` if the episode ended before.
        failed: the number of replays that ended in an error; they have neither return nor response.
        draws: how often the policy drew this reply, among the real one and the first draws, as many as the plan has
            candidates. Later draws, until there are enough different ones, would favour rare replies.
        verdict: the oracle's score at the bucket's state, in [0, 1]; `None` without an oracle or if it failed.
        exact: Q(h, a), the exact value under the policy (eq. 17); `None` if it was not enumerated.
        replays: the episodes of `returns`, from the step of the decision on; only for candidates, and empty if they
            were not kept.
    """

    text: str
    returns: tuple[float, ...] = ()
    responses: tuple[str | None, ...] = ()
    failed: int = 0
    draws: int = 1
    verdict: float | None = None
    exact: float | None = None
    replays: tuple[Episode, ...] = field(default=(), compare=False, repr=False)

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
        before: the decisions of its episode in earlier steps.
        state: the state before the decision. Files contain no states, so it is `None` in a bucket from a file.
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
        """Writes the bucket as one line of JSON, without states; `from_json` returns an equal bucket."""
        values = {name: value for name, value in vars(self).items() if name != "state"}
        for name in ("candidates", "value_only"):
            values[name] = [_action_values(action, self.before) for action in values[name]]
        values["before"] = _decision_values(self.before, ())
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Bucket:
        """Reads a bucket that `to_json` wrote.

        Raises:
            ValueError: the text is not a bucket.
        """
        try:
            values = parse_json(text, broken_text=True)
            read = Counter[str]()
            values["before"] = _decisions(values["before"], (), read)
            for name in ("candidates", "value_only"):
                values[name] = tuple(_action(action, values["before"], read) for action in values[name])
            if not values["candidates"]:
                raise ValueError("no candidate")
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(
                f"a bucket must be written by Bucket.to_json, got {type(error).__name__}: {error}; sample it again."
            ) from None


def save_buckets(buckets: Iterable[Bucket], path: str | Path) -> Path:
    """Writes buckets as JSON lines; `load_buckets` reads them."""
    return write(path, "".join(f"{bucket.to_json()}\n" for bucket in buckets))


def load_buckets(path: str | Path) -> list[Bucket]:
    """Reads the buckets of a file that `save_buckets` wrote.

    Raises:
        ValueError: a line is not a bucket; the message has its number.
        OSError: the file cannot be read.
    """
    buckets: list[Bucket] = []
    text = read_text(path, _MAX_BYTES)
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        try:
            buckets.append(Bucket.from_json(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return buckets


def _action_values(action: Action, before: Sequence[Decision]) -> dict[str, Any]:
    replays = [
        {"outcome": one.outcome, "ending": one.ending, "metrics": dict(one.metrics)}
        | {"decisions": _decision_values(one.decisions, before)}
        for one in action.replays
    ]
    return {**vars(action), "replays": replays}


def _action(values: Mapping[str, Any], before: Sequence[Decision], read: Counter[str]) -> Action:
    replays = tuple(
        Episode(
            decisions=_decisions(one["decisions"], before, read),
            outcome=one["outcome"],
            ending=Ending(one["ending"]),
            metrics=one["metrics"],
        )
        for one in values["replays"]
    )
    lists = {"returns": tuple(values["returns"]), "responses": tuple(values["responses"]), "replays": replays}
    return Action(**{**values, **lists})


def _decision_values(decisions: Sequence[Decision], before: Sequence[Decision]) -> list[dict[str, Any]]:
    """Returns decisions as plain values. A context that extends the last decision of its event type is written without
    the known tokens; otherwise a long conversation would be written once per turn."""
    written = []
    last = {decision.event: (place, decision) for place, decision in enumerate(before)}
    for place, decision in enumerate(decisions, start=len(before)):
        context, continues = decision.context_ids, None
        if decision.event in last:
            earlier, one = last[decision.event]
            known = one.context_ids + one.action_ids
            if context[: len(known)] == known:
                context, continues = context[len(known) :], earlier
        verdict = None if decision.verdict is None else vars(decision.verdict)
        own = {"continues": continues, "context_ids": context, "verdict": verdict}
        written.append({name: getattr(decision, name) for name in _KEPT} | own)
        last[decision.event] = place, decision
    return written


def _decisions(
    values: Iterable[Mapping[str, Any]], before: Sequence[Decision], read: Counter[str]
) -> tuple[Decision, ...]:
    """Returns decisions of plain values. Counts the tokens read, so that a small file cannot become a large bucket."""
    found: list[Decision] = []
    for one in values:
        context = tuple(one["context_ids"])
        if one["continues"] is not None:
            earlier = [*before, *found][one["continues"]]
            context = earlier.context_ids + earlier.action_ids + context
        read["tokens"] += len(context)
        if read["tokens"] > _MAX_TOKENS:
            raise ValueError(f"its contexts must have at most {_MAX_TOKENS} tokens in total, got more")
        own: dict[str, Any] = {
            "context_ids": context,
            "action_ids": tuple(one["action_ids"]),
            "logprobs": None if one["logprobs"] is None else tuple(one["logprobs"]),
            "verdict": None if one["verdict"] is None else Verdict(score=one["verdict"]["score"]),
        }
        found.append(Decision(state=None, **{**{name: one[name] for name in _KEPT}, **own}))
    return tuple(found)
