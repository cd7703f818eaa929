"""The collector protocol, its result, and collectors of single episodes, groups and trees, also with verdicts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from hf_credit.options import Count, GroupSize, Options
from hf_credit.oracles import Judge, OracleLike, resolve
from hf_credit.rollouts import Episode, Interaction, Ledger, verify
from hf_credit.rollouts.capabilities import Oracled, Replayable
from hf_credit.rollouts.method_context import MethodContext

TaskRow = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One episode of an update, and its purpose.

    Attributes:
        episode: as played.
        instance: the index of its task among the task rows of this process.
        trained: whether its decisions may be trained on. If not, it serves for comparison.
        counted: whether it counts in `reward` and the other metrics of episodes, if it is trained.
        later: whether it began at a later state of its task, so that its outcome counts apart.
        kind: `"policy"`, or another kind of the method, such as `"reference"` or `"continuation"`.
        source: the id of the decision that it starts from or is an alternative to; empty if there is none.
        extras: by name, data of a collector for its own method.
    """

    episode: Episode
    instance: int
    trained: bool = True
    counted: bool = True
    later: bool = False
    kind: str = "policy"
    source: str = ""
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """The episodes of a batch of task rows, on this process.

    Attributes:
        rollouts: in playing order.
        rows: number of task rows.
    """

    rollouts: tuple[Rollout, ...] = field(default=())
    rows: int = 0

    @cached_property
    def trained(self) -> tuple[Rollout, ...]:
        """The rollouts whose decisions may get credit, in order."""
        return tuple(rollout for rollout in self.rollouts if rollout.trained)

    @cached_property
    def episodes(self) -> list[Episode]:
        """The episodes of the trained rollouts."""
        return [rollout.episode for rollout in self.trained]

    @cached_property
    def instances(self) -> list[int]:
        """The instances of the trained rollouts."""
        return [rollout.instance for rollout in self.trained]

    def of_kind(self, kind: str) -> tuple[Rollout, ...]:
        """Returns the rollouts of a kind, in order."""
        return tuple(rollout for rollout in self.rollouts if rollout.kind == kind)


@runtime_checkable
class Collector(Protocol):
    """Plays the episodes for a batch of task rows. It is a value: its fields determine what it does.

    It may have two attributes: `gives`, what it provides to estimators, and a true `replaying` if it replays recorded
    states. It gives `"groups"`, several trained episodes of each task; `"trees"`, all of them from the first state of
    their task; `"alternatives"`, several decisions at one context; `"verdicts"` of an oracle on decisions;
    `"continuations"` from the states before them; `"removals"`, episodes without a role; `"audits"` of decisions;
    `"answers"`, the probability of the right answer before them; or `"ratings"` of roles by each other.
    """

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any) -> RolloutBatch:
        """Plays.

        Args:
            rows: the task rows of this process.
            context: to play, draw, gather and log.
            memory: the method's, read only.
        """


def gives_of(collector: Collector) -> frozenset[str]:
    """Returns what a collector gives; empty if it does not declare it."""
    return frozenset(getattr(collector, "gives", ()))


def bound(collector: Collector, interaction: Interaction[Any]) -> Collector:
    """Returns a collector for one Interaction: the result of its `bind`, if it has one."""
    return collector.bind(interaction) if hasattr(collector, "bind") else collector


def played(episodes: Sequence[Episode], instances: Sequence[int], rows: int) -> RolloutBatch:
    """Returns a batch of trained episodes.

    Args:
        episodes: of one call of `MethodContext.play`.
        instances: the instance of each request of that call.
    """
    rollouts = (
        Rollout(episode=of_instance(episode, instances[episode.start]), instance=instances[episode.start])
        for episode in episodes
    )
    return RolloutBatch(rollouts=tuple(rollouts), rows=rows)


def of_instance(episode: Episode, instance: int) -> Episode:
    """Returns the episode with the instance as its `start`, which identifies episodes of one task."""
    return episode if episode.start == instance else replace(episode, start=instance)


@dataclass(frozen=True, kw_only=True)
class Single:
    """One episode for each task row."""

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        starts = [context.begin(row, instance) for instance, row in enumerate(rows)]
        return played(context.play(starts), range(len(rows)), len(rows))


@dataclass(frozen=True, kw_only=True)
class Group(Options):
    """Several episodes for each task row, from one first state; all but the first are reseeded.

    Args:
        size: episodes of each task row, at least 2.
        common_random_numbers: whether they have the same world and sample their later replies with the same random
            numbers, if the sampler honours seeds.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "trees"})

    size: GroupSize = 8
    common_random_numbers: bool = False

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        if not Replayable(context.interaction).replayable:
            # Each episode starts separately; their first states are equal if the world is deterministic.
            starts = [context.begin(row, instance) for instance, row in enumerate(rows) for _ in range(self.size)]
            return played(context.play(starts), [index // self.size for index in range(len(starts))], len(rows))
        return Tree(fanout=(self.size,), common_random_numbers=self.common_random_numbers)(rows, context, memory)


@dataclass(frozen=True, kw_only=True)
class Tree(Options):
    """A tree of episodes: several alternatives at the first step, after each several at the second, and so on.

    Args:
        fanout: number of alternatives at each step.
        common_random_numbers: as in `Group`.
        budget: maximum number of terminal scores of one instance (paper C3, eq. 24); unbounded if `None`.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "trees"})

    fanout: tuple[Count, ...]
    common_random_numbers: bool = False
    budget: Count | None = None
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        say_whether_shared(context, self.common_random_numbers)
        starts = [
            context.begin(
                row,
                instance,
                fanout=self.fanout,
                stream=context.stream("instance", instance) if self.common_random_numbers else None,
            )
            for instance, row in enumerate(rows)
        ]
        collected = played(context.play(starts), range(len(rows)), len(rows))
        refuse_over_budget(collected, self.budget)
        return collected


def single_or_group(size: int) -> Collector:
    """Returns the collector of one episode for each task row, or of a group."""
    return Single() if size == 1 else Group(size=size)


def say_whether_shared(context: MethodContext, wanted: bool) -> None:
    """Logs whether requested common random numbers are in effect, since a sampler may ignore seeds."""
    if wanted:
        context.log("common_random_numbers", float(context.stream() is not None))


def refuse_over_budget(collected: RolloutBatch, budget: int | None) -> None:
    """Rejects a batch with more terminal scores of an instance than the budget (paper C3, Appendix D).

    Raises:
        RuntimeError: an instance has more.
    """
    spent = Counter[int]()
    for rollout in collected.rollouts:
        spent[rollout.instance] += rollout.episode.scored
    most = max(spent.values(), default=0)
    if budget is not None and most > budget:
        raise RuntimeError(
            f"an instance must take at most {budget} terminal scores, got {most}; collect fewer episodes or raise the "
            "budget."
        )


@dataclass(frozen=True, kw_only=True)
class Around:
    """A collector around another; a subclass says in `adds` what it gives besides the other.

    Args:
        inner: the collector of the episodes.
    """

    adds: ClassVar[frozenset[str]] = frozenset()

    inner: Collector = field(default_factory=Single)

    @property
    def replaying(self) -> bool:
        """Whether `inner` replays recorded states."""
        return bool(getattr(self.inner, "replaying", False))

    @property
    def gives(self) -> frozenset[str]:
        """What `inner` gives, and what it adds."""
        return gives_of(self.inner) | self.adds

    def bind(self, interaction: Interaction[Any]) -> Self:
        """Returns the collector with `inner` for one Interaction."""
        return replace(self, inner=bound(self.inner, interaction))


@dataclass(frozen=True, kw_only=True)
class Verified(Around):
    """The episodes of another collector, with verdicts.

    Args:
        inner: the collector of the episodes.
        oracle: the oracle, its name, or a mapping of its `name` and `options`; the environment's default if `None`.
        required: whether an oracle is required and its failure ends an episode as an error. Otherwise it only provides
            metrics, and its failures have no effect.
    """

    oracle: OracleLike | None = None
    required: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "oracle", resolve(self.oracle))

    @property
    def adds(self) -> frozenset[str]:  # type: ignore[override]
        """Verdicts, if it has an oracle."""
        return frozenset({"verdicts"} if self.oracle is not None else ())

    def bind(self, interaction: Interaction[Any]) -> Self:
        """Returns the collector with its oracle, or else the default oracle of an Interaction's environment.

        Raises:
            ValueError: the oracle does not fit the Interaction, or a required oracle is missing.
        """
        oracle = Oracled(interaction).chosen(resolve(self.oracle))
        if oracle is None and self.required:
            raise ValueError(
                f"this method needs an oracle, got none and {interaction.name!r} has no default; pass oracle=."
            )
        return replace(super().bind(interaction), oracle=oracle)

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        episodes = iter(self.verified(collected.episodes, context))
        rollouts = (
            replace(rollout, episode=next(episodes)) if rollout.trained else rollout for rollout in collected.rollouts
        )
        return replace(collected, rollouts=tuple(rollouts))

    def verified(self, episodes: Sequence[Episode], context: MethodContext) -> Sequence[Episode]:
        """Returns the episodes with verdicts, if there is an oracle."""
        oracle = resolve(self.oracle)
        if oracle is None:
            return episodes
        start, costs = time.perf_counter(), Counter[str]()
        verified: list[Episode] = []
        for some in [episodes] if isinstance(oracle, Judge) else [[one] for one in episodes]:
            context.progressed()
            verified += verify(some, oracle, context.interaction, context.failures, costs, context.waiting)
        context.mean("oracle/seconds", [time.perf_counter() - start])
        if isinstance(oracle, Judge):
            context.mean("oracle/unknown", [1.0] * costs.pop("unknown") + [0.0] * costs.pop("known"))
            for name, cost in costs.items():
                context.total(f"oracle/{name}", cost)
            context.spend(Ledger(others={"judge": costs["tokens"]}))
        if self.required:
            return verified
        return [
            replace(after, ending=before.ending, error=before.error, exception=before.exception)
            for before, after in zip(episodes, verified, strict=True)
        ]
