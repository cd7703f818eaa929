"""The results of held-out episodes, their means and intervals (paper VPR, Table 1)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hf_credit.boundary import read
from hf_credit.evaluation.statistics import SHARE, Interval, mean_with_interval, paired_difference
from hf_credit.rollouts import Ending, Episode
from hf_credit.rollouts.metric_names import METRICS
from hf_credit.safe_io import parse_json, read_text


@dataclass(frozen=True, kw_only=True)
class EpisodeRecord:
    """The result of one episode.

    Attributes:
        seed: the seed of its task; two policies are compared on equal seeds.
        ending: how it ended.
        outcome: its outcome; `None` if it is unknown.
        metrics: the metrics of its Interaction, such as `success`.
        turns: the number of decisions.
        judged, valid: the numbers of decisions that an oracle judged, and accepted.
        tokens: the number of tokens that the policy generated.
        error: the error message, if it ended in an error.
    """

    seed: int
    ending: str
    outcome: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    turns: int = 0
    judged: int = 0
    valid: int = 0
    tokens: int = 0
    error: str | None = None

    @classmethod
    def of(cls, seed: int, episode: Episode) -> EpisodeRecord:
        """Returns the record of an episode, with or without verdicts."""
        verdicts = [decision.verdict for decision in episode.decisions if decision.verdict is not None]
        return cls(
            seed=seed,
            ending=str(episode.ending),
            outcome=None if math.isnan(episode.outcome) else episode.outcome,
            metrics=dict(episode.metrics),
            turns=episode.turns,
            judged=len(verdicts),
            valid=sum(verdict.valid for verdict in verdicts),
            tokens=episode.generated_tokens,
            error=episode.error,
        )

    def values(self) -> dict[str, float]:
        """Returns the metrics of the episode, with the names of training logs."""
        return {
            **self.metrics,
            **({} if self.outcome is None else {"reward": self.outcome}),
            **({"oracle/valid": self.valid / self.judged} if self.judged else {}),
            **{f"endings/{ending}": float(self.ending == ending) for ending in Ending},
            "turns": float(self.turns),
            "tokens": float(self.tokens),
        }


def evaluation_files(folder: str | Path) -> list[Path]:
    """Returns the files with the evaluations of a run, which `hf-credit evaluate --output` wrote into its folder."""
    return sorted(Path(folder).glob("evaluation*.json"))


@dataclass(frozen=True, kw_only=True)
class EvalResults:
    """The records of one policy.

    Attributes:
        records: one per episode, with different seeds.
        about: the task, the model and the settings, as plain values.
    """

    records: tuple[EpisodeRecord, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tasks(self) -> dict[str, Any]:
        """What two evaluations on the same tasks have in common: the task and its options, the dataset, and seeds."""
        setup = self.about.get("setup")
        facts = [(setup if isinstance(setup, Mapping) else {}).get(name) for name in ("task", "task_options")]
        seeds = sorted(record.seed for record in self.records)
        known = (facts[0], facts[1] or {}, self.about.get("dataset"), self.about.get("split"), seeds)
        return dict(zip(("task", "options", "dataset", "split", "seeds"), known, strict=True))

    def values(self, name: str) -> dict[int, float]:
        """Returns the metric `name` of every episode that has it, by seed."""
        found = ((record.seed, record.values()) for record in self.records)
        return {seed: values[name] for seed, values in found if name in values}

    def summary(self, confidence: float = 0.95) -> dict[str, Interval]:
        """Returns the mean of every metric over episodes, with its interval, in the order of `METRICS`.

        An episode that the world ended in an error has no outcome and no metrics: it counts in `endings/error`, but
        not in `reward` and rates such as `success`. `oracle/valid` is the mean of the shares of episodes. The ends of
        the interval of a single value are NaN. Other intervals stay in the range of their metric (`range_of`).

        Args:
            confidence: as in `hf_credit.evaluation.statistics.mean_interval`.

        Raises:
            ValueError: as in `mean_interval`.
            ImportError: scipy is missing.
        """
        names = {name for record in self.records for name in record.values()}
        known = [name for name in METRICS if name in names]
        found = {name: list(self.values(name).values()) for name in [*known, *sorted(names - set(known))]}
        return {name: mean_with_interval(values, confidence, range_of(name, values)) for name, values in found.items()}

    def to_json(self) -> str:
        """Writes the results as JSON, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> EvalResults:
        """Reads results that `to_json` wrote.

        Raises:
            ValueError: the text does not contain results.
        """
        try:
            values = parse_json(text, broken_text=True)
            records = read(tuple[EpisodeRecord, ...], values["records"], "results")
            if len({one.seed for one in records}) < len(records):
                raise ValueError("two records have the same seed")
            return cls(records=records, about=read(Mapping[str, Any], values["about"], "about of results"))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"results must be written by EvalResults.to_json, got {type(error).__name__}: {error}; evaluate the "
                "policy again."
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> EvalResults:
        """Reads the results in a file."""
        return cls.from_json(read_text(path))


def difference(a: EvalResults, b: EvalResults, name: str, confidence: float = 0.95) -> Interval:
    """Returns the mean difference of a metric between two policies, paired by task, with its interval.

    The interval covers the draw of tasks, but not other training runs of the same methods. A task counts if both have
    a value of the metric, which an episode that ended in an error lacks; `n` is the number of those that count.

    Args:
        a, b: the results on the same tasks; the difference is a - b.
        name: a metric that both have.
        confidence: the level of the interval, in (0, 1).

    Raises:
        ValueError: the tasks differ, or fewer than two have `name` in both.
        ImportError: scipy is missing.
    """
    if differing := [what for what, own in a.tasks.items() if own != b.tasks[what]]:
        raise ValueError(
            f"two policies must be compared on the same tasks, got {len(a.records)} and {len(b.records)} episodes "
            f"with a different {' and '.join(differing)}; evaluate both with the same task and options, dataset and "
            "split, number of episodes and first task."
        )
    first, second = a.values(name), b.values(name)
    both = sorted(first.keys() & second.keys())
    left, right = [first[seed] for seed in both], [second[seed] for seed in both]
    return paired_difference(left, right, confidence, within=range_of(name, [*first.values(), *second.values()]))


def range_of(name: str, values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the range of a metric: [0, 1] for shares, not negative for counts; `None` if it is not known.

    Tasks do not tell the range of their outcomes: it is [0, 1], or [-1, 1] for returns of games, if all values are
    within.
    """
    if name in ("turns", "tokens"):
        return 0.0, math.inf
    known = (-1.0, 1.0) if name.startswith("return") or any(value < 0 for value in values) else SHARE
    return known if all(known[0] <= value <= known[1] for value in values) else None
