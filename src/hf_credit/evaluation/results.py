"""What is counted of held-out episodes of a policy, and how sure the means are (paper VPR, Table 1)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_credit.evaluation.statistics import Interval, mean_with_interval, paired_difference
from hf_credit.rollouts import Ending, Episode
from hf_credit.safe_io import parse_json, read_text

LABELS = {
    "success": "success rate",
    "completion": "completion rate",
    "return_first": "return, moving first",
    "return_second": "return, moving second",
    "return": "return",
    "draw": "draws",
    "loss": "losses",
    "reward": "outcome",
    "oracle/valid": "oracle-valid actions",
    **{f"endings/{ending}": f"ended: {ending.replace('_', ' ')}" for ending in Ending},
    "turns": "turns per episode",
    "tokens": "tokens per episode",
}
"""What people call each number, in the order in which they are shown."""

SHARES = ("success", "completion", "draw", "loss", "oracle/valid", *(f"endings/{ending}" for ending in Ending))
"""The numbers in [0, 1], which people read as percentages."""


@dataclass(frozen=True, kw_only=True)
class EpisodeRecord:
    """What is kept of one episode.

    Attributes:
        seed: of its task; two policies are compared on equal seeds.
        ending: how it ended.
        outcome: what it was worth.
        metrics: what its Interaction reports, such as `success`.
        turns: decisions made.
        judged, valid: decisions an oracle judged, and those it accepted.
        tokens: tokens the policy produced.
        error: the failure, where it ended in one.
    """

    seed: int
    ending: str
    outcome: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    turns: int = 0
    judged: int = 0
    valid: int = 0
    tokens: int = 0
    error: str | None = None

    @classmethod
    def of(cls, seed: int, episode: Episode) -> EpisodeRecord:
        """The record of an episode whose decisions may carry verdicts."""
        verdicts = [decision.verdict for decision in episode.decisions if decision.verdict is not None]
        return cls(
            seed=seed,
            ending=str(episode.ending),
            outcome=episode.outcome,
            metrics=dict(episode.metrics),
            turns=episode.turns,
            judged=len(verdicts),
            valid=sum(verdict.valid for verdict in verdicts),
            tokens=episode.generated_tokens,
            error=episode.error,
        )

    def values(self) -> dict[str, float]:
        """Every number of the episode by the name it has in the logs of training."""
        return {
            **self.metrics,
            "reward": self.outcome,
            **({"oracle/valid": self.valid / self.judged} if self.judged else {}),
            **{f"endings/{ending}": float(self.ending == ending) for ending in Ending},
            "turns": float(self.turns),
            "tokens": float(self.tokens),
        }


@dataclass(frozen=True, kw_only=True)
class EvalResults:
    """The records of one policy.

    Attributes:
        records: one an episode, seeds all different.
        about: what was played, by which model and how: plain values, for the reader.
    """

    records: tuple[EpisodeRecord, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def values(self, name: str) -> dict[int, float]:
        """The number called `name` of every episode that has it, by seed."""
        found = ((record.seed, record.values()) for record in self.records)
        return {seed: values[name] for seed, values in found if name in values}

    def summary(self, confidence: float = 0.95, resamples: int = 10_000) -> dict[str, Interval]:
        """The mean over episodes of every number, with its interval, in the order of `LABELS`.

        An episode that ended in an error has no metrics of its own: it counts in `endings/error` and `reward`, not
        in rates such as `success`. The oracle's share is the mean of the episodes' own shares. A single value has no
        interval: its ends are NaN. The interval of a share ends at 0 and 1, beyond which no share lies.

        Args:
            confidence, resamples: as in `hf_credit.evaluation.statistics.mean_interval`.

        Raises:
            ValueError: as in `mean_interval`.
            ImportError: scipy is missing.
        """
        names = {name for record in self.records for name in record.values()}
        known = [name for name in LABELS if name in names]
        found = {
            name: mean_with_interval(list(self.values(name).values()), confidence, resamples)
            for name in [*known, *sorted(names - set(known))]
        }
        return {name: within_shares(interval) if name in SHARES else interval for name, interval in found.items()}

    def to_json(self) -> str:
        """The results as JSON; `from_json` gives back equal results."""
        return json.dumps(
            {"about": dict(self.about), "records": [dataclasses.asdict(record) for record in self.records]}, indent=1
        )

    @classmethod
    def from_json(cls, text: str) -> EvalResults:
        """The results that `to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        try:
            values = parse_json(text, broken_text=True)
            records = tuple(EpisodeRecord(**record) for record in values["records"])
            return cls(records=records, about=values["about"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"results must be what EvalResults.to_json writes, got {type(error).__name__}: {error}; "
                "evaluate the policy again."
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> EvalResults:
        """The results in a file."""
        return cls.from_json(read_text(path))


def difference(a: EvalResults, b: EvalResults, name: str, confidence: float = 0.95) -> Interval:
    """The interval of the mean of `name` of a minus b, task by task.

    It says how far the difference between these two policies depends on the tasks drawn. It says nothing about
    other training runs of the same methods.

    Args:
        a, b: of the same tasks.
        name: a number that both have.
        confidence: in (0, 1).

    Raises:
        ValueError: the tasks differ, or fewer than two have `name` in both.
        ImportError: scipy is missing.
    """
    if {record.seed for record in a.records} != {record.seed for record in b.records}:
        raise ValueError(
            f"two policies must be compared on the same tasks, got {len(a.records)} and {len(b.records)} episodes "
            "with other seeds; evaluate both with the same number of episodes and the same first task."
        )
    first, second = a.values(name), b.values(name)
    both = sorted(first.keys() & second.keys())
    return paired_difference([first[seed] for seed in both], [second[seed] for seed in both], confidence)


def within_shares(interval: Interval) -> Interval:
    """The same, cut to [0, 1]; Student's interval of few values may reach beyond."""
    low, high = (min(max(end, 0.0), 1.0) if not math.isnan(end) else end for end in (interval.low, interval.high))
    return dataclasses.replace(interval, low=low, high=high)
