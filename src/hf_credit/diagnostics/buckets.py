"""Diagnostic buckets: a decision at a frozen context, what else was tried there, what came of it (C3, Appendix I).

A bucket is a record of plain values, so that what it cost to make is paid once: files of buckets can be measured again
and read by people.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_credit.diagnostics import Failure, failure_category


@dataclass(frozen=True, kw_only=True)
class Action:
    """A reply at a bucket's context, with what it led to.

    Attributes:
        text: the reply.
        returns: the outcome of each replay that did not fail, in the order of the replays.
        responses: of the same replays, the first message of the teammate downstream, which is the next one of another
            event type; `None` where the episode ended before.
        failed: replays that ended in an error; they have neither return nor response.
        draws: how often the reply came up among the bucket's draws.
        verdict: what an oracle says of it at the bucket's state, in [0, 1]; `None` where none was asked or it failed.
        exact: Q(h, a), its true value under the policy (eq. 17), where it was enumerated.
    """

    text: str
    returns: tuple[float, ...] = ()
    responses: tuple[str | None, ...] = ()
    failed: int = 0
    draws: int = 1
    verdict: float | None = None
    exact: float | None = None

    @property
    def mean_return(self) -> float:
        """The estimate of Q(h, a) (eq. 11).

        Raises:
            StatisticsError: every replay failed.
        """
        return fmean(self.returns)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A decision occurrence and its alternatives.

    Attributes:
        event: the type of the event.
        role: who decides.
        key: of the context (Appendix C).
        context: the context as text, as the model was given it.
        task: the place of its task among the starts.
        turn: how many decisions came before it in its episode.
        candidates: different replies, each drawn from the policy; the first is what was really said.
        value_only: replies drawn from the policy with repetition, whose returns make the baseline V(h) only.
        critic: what a critic says the context is worth; `None` where none was asked.
        exact: V(h), the true value of the context under the policy (eq. 19), where it was enumerated.
        state: the replay state. It is not written to files: a bucket that was read has `None`.
    """

    event: str
    role: str
    key: int
    context: str
    task: int
    turn: int
    candidates: tuple[Action, ...]
    value_only: tuple[Action, ...] = ()
    critic: float | None = None
    exact: float | None = None
    state: Any = field(default=None, compare=False, repr=False)

    @property
    def real(self) -> Action:
        """What was really said."""
        return self.candidates[0]

    @property
    def replayed(self) -> tuple[Action, ...]:
        """The candidates that have a return; only these can be compared."""
        return tuple(action for action in self.candidates if action.returns)

    @property
    def best(self) -> Action | None:
        """The candidate of the highest mean return, of equal ones the first; `None` where every replay failed."""
        return max(self.replayed, key=lambda action: action.mean_return, default=None)

    @property
    def value(self) -> float | None:
        """The estimate of V(h) from the value-only actions, each weighted by its replays; `None` without any."""
        returns = [value for action in self.value_only for value in action.returns]
        return fmean(returns) if returns else None

    @property
    def failure(self) -> Failure:
        """What went wrong here (Appendix N)."""
        return failure_category([action.returns for action in self.candidates])

    def to_json(self) -> str:
        """The bucket as one line of JSON, without its state; `from_json` gives back an equal one."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name != "state"}
        return json.dumps(values, default=dataclasses.asdict, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Bucket:
        """The bucket that `to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        try:
            values = json.loads(text)
            for name in ("candidates", "value_only"):
                values[name] = tuple(_action(action) for action in values[name])
            if not values["candidates"]:
                raise ValueError("no candidate")
            return cls(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"a bucket must be what Bucket.to_json writes, got {type(error).__name__}: {error}; sample it again."
            ) from None


def save_buckets(buckets: Iterable[Bucket], path: str | Path) -> Path:
    """Writes buckets as JSON lines; `load_buckets` reads them."""
    path = Path(path)
    path.write_text("".join(f"{bucket.to_json()}\n" for bucket in buckets), encoding="utf-8")
    return path


def load_buckets(path: str | Path) -> list[Bucket]:
    """The buckets of a file that `save_buckets` wrote.

    Raises:
        ValueError: a line is something else; the sentence names it.
        OSError: the file cannot be read.
    """
    buckets = []
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                buckets.append(Bucket.from_json(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    return buckets


def _action(values: Mapping[str, Any]) -> Action:
    return Action(**{**values, "returns": tuple(values["returns"]), "responses": tuple(values["responses"])})
