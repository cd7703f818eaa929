"""Policies on games: held-out episodes, what is counted of each, and how sure the means are (paper VPR, Table 1)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_credit.environments.tasks import task_seed
from hf_credit.evaluation.statistics import Interval, mean_interval, paired_difference
from hf_credit.oracles import Oracle
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    Episode,
    GenerateFn,
    Interaction,
    Start,
    refuse_total_failure,
    verify,
)
from hf_credit.rollouts.samplers import counted
from hf_credit.untrusted import parse_json, read_text

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
class GameRecord:
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
    def of(cls, seed: int, episode: Episode) -> GameRecord:
        """The record of an episode whose decisions may carry verdicts."""
        verdicts = [decision.verdict for decision in episode.decisions if decision.verdict is not None]
        return cls(
            seed=seed,
            ending=str(episode.ending),
            outcome=episode.outcome,
            metrics=dict(episode.metrics),
            turns=len(episode.decisions),
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
class GameResults:
    """The records of one policy.

    Attributes:
        records: one an episode, seeds all different.
        about: what was played, by which model and how: plain values, for the reader.
    """

    records: tuple[GameRecord, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def values(self, name: str) -> dict[int, float]:
        """The number called `name` of every episode that has it, by seed."""
        found = ((record.seed, record.values()) for record in self.records)
        return {seed: values[name] for seed, values in found if name in values}

    def summary(self, confidence: float = 0.95, resamples: int = 10_000) -> dict[str, Interval]:
        """The mean over episodes of every number, with its interval, in the order of `LABELS`.

        An episode that ended in an error has no metrics of its own: it counts in `endings/error` and `reward`, not
        in rates such as `success`. The oracle's share is the mean of the episodes' own shares. A single value has no
        interval: its ends are NaN.

        Args:
            confidence, resamples: as in `hf_credit.evaluation.statistics.mean_interval`.

        Raises:
            ValueError: as in `mean_interval`.
            ImportError: scipy is missing.
        """
        names = {name for record in self.records for name in record.values()}
        known = [name for name in LABELS if name in names]
        return {
            name: _interval(list(self.values(name).values()), confidence, resamples)
            for name in [*known, *sorted(names - set(known))]
        }

    def to_json(self) -> str:
        """The results as JSON; `from_json` gives back equal results."""
        return json.dumps(
            {"about": dict(self.about), "records": [dataclasses.asdict(record) for record in self.records]}, indent=1
        )

    @classmethod
    def from_json(cls, text: str) -> GameResults:
        """The results that `to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        try:
            values = parse_json(text, broken_text=True)
            records = tuple(GameRecord(**record) for record in values["records"])
            return cls(records=records, about=values["about"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"results must be what GameResults.to_json writes, got {type(error).__name__}: {error}; "
                "evaluate the policy again."
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> GameResults:
        """The results in a file."""
        return cls.from_json(read_text(path))


def held_out_starts(episodes: int, first: int = 0) -> list[Start[Any]]:
    """The starts of held-out tasks `first` to `first + episodes - 1`, the same for every policy.

    Raises:
        ValueError: there is no such task.
    """
    seeds = [task_seed("held_out", index) for index in range(first, first + episodes)]
    return [Start(task={}, seed=seed) for seed in seeds]


def evaluate_policy(
    generate: GenerateFn | Mapping[str, GenerateFn],
    chat: Chat,
    interaction: Interaction[Any],
    starts: Sequence[Start[Any]],
    oracle: Oracle[Any] | None = None,
    *,
    max_concurrent: int = 256,
    max_context_tokens: int | None = None,
    about: Mapping[str, Any] | None = None,
    on_replies: Callable[[int], None] | None = None,
) -> GameResults:
    """Plays one episode from each start and keeps a record of it.

    Args:
        generate: the policy, or that of each role.
        chat: its tokenizer and template.
        interaction: what is played, shown as in training.
        starts: each with a task and a seed of its own; see `held_out_starts`.
        oracle: judges every action; nobody does if `None`.
        max_concurrent, max_context_tokens: as for `Engine`.
        about: kept with the results.
        on_replies: told after each round how many replies it brought.

    Raises:
        ValueError: two starts have the same seed, or one has none; or no context was short enough for a reply.
        EveryEpisodeFailedError: every episode ended as an error, the first of which is its cause.
    """
    seeds = [_seed(start) for start in starts]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"every episode must have a seed of its own, got {_repeated(seeds)} more than once; drop it.")

    policies = counted(generate, on_replies)
    engine = Engine(interaction, chat, policies, max_concurrent=max_concurrent, max_context_tokens=max_context_tokens)
    episodes = engine.run(starts)
    if oracle is not None:
        episodes = verify(episodes, oracle, engine.failures)
    refuse_total_failure(episodes, what="of an evaluation")
    refuse_unplayed(episodes, engine.max_context_tokens)
    records = tuple(GameRecord.of(seed, episode) for seed, episode in zip(seeds, episodes, strict=True))
    return GameResults(records=records, about=dict(about or {}))


def difference(a: GameResults, b: GameResults, name: str, confidence: float = 0.95) -> Interval:
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


def refuse_unplayed(episodes: Sequence[Episode], max_context_tokens: float) -> None:
    """Refuses episodes none of which began: a table of zeros would say of the policy what is true of the settings.

    Args:
        episodes: of a policy.
        max_context_tokens: the limit that they met.

    Raises:
        ValueError: each was truncated before its first reply.
    """
    if episodes and all(episode.ending == Ending.TRUNCATED and not episode.decisions for episode in episodes):
        raise ValueError(
            f"some task of an evaluation must leave room for a reply, got {len(episodes)} tasks whose contexts are "
            f"longer than the {max_context_tokens:g} tokens beside it; lower max_new_tokens or take a model that "
            "reads more."
        )


def _interval(values: list[float], confidence: float, resamples: int) -> Interval:
    if len(values) == 1:
        return Interval(mean=values[0], low=math.nan, high=math.nan, confidence=confidence, n=1)
    return mean_interval(values, confidence, resamples)


def _seed(start: Start[Any]) -> int:
    if start.seed is None:
        raise ValueError("every episode must have a seed, got a start without one; give it one.")
    return start.seed


def _repeated(seeds: Iterable[int]) -> int:
    seen: set[int] = set()
    return next(seed for seed in seeds if seed in seen or seen.add(seed))  # type: ignore[func-returns-value]
