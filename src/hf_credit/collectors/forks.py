"""Episodes that continue from states of others: forks, alternatives at visited contexts, and Monte Carlo rollouts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean
from typing import Annotated, Any, ClassVar

from hf_credit.boundary import Range
from hf_credit.collectors.base import (
    Around,
    Group,
    Rollout,
    RolloutBatch,
    TaskRow,
    played,
    refuse_over_budget,
    say_whether_shared,
    single_or_group,
)
from hf_credit.options import Count, GroupSize, Options
from hf_credit.rollouts import Decision, Ending, Episode, RolloutRequest, replay_from
from hf_credit.rollouts.method_context import MethodContext

CONTINUATION = "continuation"
AT_ONCE = 1024  # rollouts whose contexts are kept: those of a whole update can take gigabytes


@dataclass(frozen=True, kw_only=True)
class Continuations(Options, Around):
    """The episodes of another collector, and rollouts from the state before each decision: of the same policy, or of
    the run's model of `continuations`.

    The rollouts serve only for comparison, and only their first step is kept. A failed episode has none.

    Args:
        rollouts: number from each state.
        inner: the collector of the episodes to train on.
        template_kwargs: chat template settings of the rollouts, such as `{"enable_thinking": false}` for a cheaper
            mode of the policy. `None` continues the recorded tokens instead.
    """

    adds: ClassVar[frozenset[str]] = frozenset({"continuations"})

    rollouts: Count
    template_kwargs: Mapping[str, Any] | None = None
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        origins = [
            (rollout, index)
            for rollout in collected.trained
            if rollout.episode.ending != Ending.ERROR
            for index, decision in enumerate(rollout.episode.decisions)
            if not decision.observed
        ]
        rollouts, tokens, at_once = list[Rollout](), 0, max(AT_ONCE // self.rollouts, 1)
        for first in range(0, max(context.gather([len(origins)])), at_once):  # on all processes
            some = origins[first : first + at_once]
            begun = [replay_from(context.interaction, context.chat, one.episode, index) for one, index in some]
            if self.template_kwargs is not None:
                begun = [RolloutRequest(state=one.state) for one in begun]
            starts = [replace(one, seed=seed) for one in begun for seed in range(self.rollouts)]
            episodes = context.play(starts, policy="player", template_kwargs=self.template_kwargs)
            tokens += sum(episode.generated_tokens for episode in episodes)
            for episode in episodes:
                origin, index = some[episode.start // self.rollouts]
                rest: Any = {"decisions": tuple(chain(*episode.steps[:1])), "conversations": {}, "final_state": None}
                of: Any = {"instance": origin.instance, "source": origin.episode.decisions[index].id}
                rollouts.append(Rollout(episode=replace(episode, **rest), trained=False, kind=CONTINUATION, **of))
        context.total("tokens/continuations", tokens)
        return replace(collected, rollouts=(*collected.rollouts, *rollouts))


def continuation_values(collected: RolloutBatch) -> dict[str, float]:
    """Returns the Monte Carlo values of the states before decisions, by the decision's id, where they are known.

        V(s) = mean outcome of the rollouts from s that did not fail

    It is unknown if all of them failed, as they did if one diverged
    (`hf_credit.rollouts.failures.unknown_where_diverged`).
    """
    outcomes: dict[str, list[float]] = {}
    for rollout in collected.of_kind(CONTINUATION):
        if rollout.episode.ending != Ending.ERROR:
            outcomes.setdefault(rollout.source, []).append(rollout.episode.outcome)
    return {source: fmean(known) for source, known in outcomes.items()}


@dataclass(frozen=True, kw_only=True)
class VisitedContexts(Options):
    """Plays unscored reference rollouts, draws contexts that they visited, and replays alternatives there.

    Args:
        references: number of unscored episodes of each task row.
        contexts: maximum number of drawn contexts of each task row.
        alternatives: number of messages at each drawn context.
        replays: number of continuations of each message.
        common_random_numbers: whether the alternatives of a context continue with the same random numbers.
        budget: maximum number of terminal scores of one instance; unbounded if `None`.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives"})

    references: Count
    contexts: Count
    alternatives: Count
    replays: Count = 1
    common_random_numbers: bool = False
    budget: int | None = None
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        begun = (context.begin(row, instance, scored=False) for instance, row in enumerate(rows))
        starts = [start for start in begun for _ in range(self.references)]
        references = context.play(starts)
        say_whether_shared(context, self.common_random_numbers)
        fanout = (self.alternatives, self.replays)
        replays, instances = [], []
        for instance in range(len(rows)):
            visited = _contexts(references[instance * self.references : (instance + 1) * self.references])
            chosen = context.draws("contexts", instance).sample(visited, min(self.contexts, len(visited)))
            for number, (episode, turn) in enumerate(chosen):
                stream = context.stream("context", instance, number) if self.common_random_numbers else None
                start = replay_from(context.interaction, context.chat, episode, turn, fanout=fanout, stream=stream)
                replays.append(start)
                instances.append(instance)
        collected = played(context.play(replays), instances, len(rows))
        context.total("tokens/reference_rollouts", sum(episode.generated_tokens for episode in references))
        reference_rollouts = (
            Rollout(episode=episode, instance=episode.start // self.references, trained=False, kind="reference")
            for episode in references
        )
        collected = replace(collected, rollouts=(*reference_rollouts, *collected.rollouts))
        refuse_over_budget(collected, self.budget)
        return collected


def _contexts(references: Sequence[Episode]) -> list[tuple[Episode, int]]:
    """One decision for each context that the episodes visited, in visiting order (Algorithm 1, lines 3-4)."""
    visited: dict[tuple[str, tuple[int, ...]], tuple[Episode, int]] = {}
    for episode in references:
        for turn, decision in enumerate(episode.decisions):
            if not decision.observed:
                visited.setdefault((decision.event, decision.context_ids), (episode, turn))
    return list(visited.values())


def fork(origins: Sequence[tuple[Rollout, int]], seeds: Sequence[int], context: MethodContext) -> list[Rollout]:
    """Plays new episodes from the states before recorded decisions.

    Each also contains the earlier decisions, which it shares with the original episode. Its `source` is the recorded
    decision.

    Args:
        origins: for each fork, a rollout and the index of one of its decisions; may be empty.
        seeds: of the future randomness of each fork.
    """
    starts: list[RolloutRequest[Any]] = [
        replay_from(context.interaction, context.chat, rollout.episode, index, seed=seed)
        for (rollout, index), seed in zip(origins, seeds, strict=True)
    ]
    forks = []
    for later in context.play(starts):
        rollout, index = origins[later.start]
        before = rollout.episode.decisions[:index]
        origin = rollout.episode
        begun: Any = {"start": rollout.instance, "conversations": origin.conversations, "earned": origin.earned}
        episode = replace(later, decisions=(*before, *later.decisions), prefix_length=index, **begun)
        source = rollout.episode.decisions[index].id
        forks.append(Rollout(episode=episode, instance=rollout.instance, kind="fork", source=source))
    return forks


def tree_numbers(collected: RolloutBatch) -> list[int]:
    """Returns the number of each trained rollout's tree: the index of the tree's episode from the start.

    Forks must follow the episodes that they start from.
    """
    of_decision: dict[str, int] = {}
    numbers = []
    for index, rollout in enumerate(collected.trained):
        number = of_decision.get(rollout.source, index)
        numbers.append(number)
        for decision in rollout.episode.decisions:
            of_decision.setdefault(decision.id, number)
    return numbers


@dataclass(frozen=True, kw_only=True)
class RandomForks(Options):
    """Several trees for each task row: an episode each, expanded at random (Tree-GRPO, arXiv:2509.21240).

    Each round draws `expansions` of the decisions of a tree and plays a new episode from the state before each. An
    instance thus has trees * (1 + rounds * expansions) episodes, fewer if a tree has too few decisions. A fork costs
    only the tokens after it.

    Args:
        trees: number of trees per task row.
        expansions: number of forks of each tree in each round.
        rounds: number of rounds.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "trees"})

    trees: Count = 2
    expansions: Count = 2
    rounds: Count = 1
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = single_or_group(self.trees)(rows, context, memory)
        for number in range(self.rounds):
            drawn: list[tuple[Rollout, int]] = []
            of_tree: dict[int, list[tuple[Rollout, int]]] = {}
            for tree, rollout in zip(tree_numbers(collected), collected.rollouts, strict=True):
                of_tree.setdefault(tree, []).extend((rollout, index) for index, _, _ in _fresh_steps(rollout))
            for tree, nodes in of_tree.items():
                drawn += context.draws("forks", number, tree).sample(nodes, min(self.expansions, len(nodes)))
            seeds = range(len(collected.rollouts), len(collected.rollouts) + len(drawn))
            collected = replace(collected, rollouts=(*collected.rollouts, *fork(drawn, seeds, context)))
        return collected


@dataclass(kw_only=True)
class _State:
    """A state in the episodes of an instance."""

    origin: tuple[Rollout, int]  # its first occurrence: a rollout, and the index of its decision there
    surprise: list[float] = field(default_factory=list)  # -log p of each step from it
    children: int = 0  # steps from it, planned ones included

    @property
    def priority(self) -> float:
        return sum(self.surprise) / len(self.surprise) / self.children


@dataclass(frozen=True, kw_only=True)
class UncertainForks(Options):
    """Episodes of each task row, then forks where the policy is least certain (CARL, arXiv:2512.04949).

    The next fork is at the state of the instance with the largest H / n, where H is the mean of -log p per token, in
    nats, over the n steps from that state. The first states of an instance's episodes count as one state.

    Args:
        initial: number of episodes from the start.
        forks: number of forks per task row.
        forks_per_round: number of forks to choose before playing them; 1 in the paper, more is faster.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "trees"})

    initial: GroupSize = 4
    forks: Annotated[int, Range(0)] = 16
    forks_per_round: Count = 1
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = Group(size=self.initial)(rows, context, memory)
        states: list[dict[str, _State]] = [{} for _ in rows]  # by the id of the decision before, "" at the start
        fresh = collected.rollouts
        for number in range(math.ceil(self.forks / self.forks_per_round)):
            self._add_steps(fresh, states, context)
            left = min(self.forks_per_round, self.forks - number * self.forks_per_round)
            origins = [origin for of_instance in states for origin in _choose(of_instance.values(), left)]
            seeds = range(len(collected.rollouts), len(collected.rollouts) + len(origins))
            fresh = tuple(fork(origins, seeds, context))
            collected = replace(collected, rollouts=(*collected.rollouts, *fresh))
        return collected

    def _add_steps(self, fresh: Sequence[Rollout], states: list[dict[str, _State]], context: MethodContext) -> None:
        steps = [(rollout, *step) for rollout in fresh for step in _fresh_steps(rollout)]
        logprobs = iter(context.logprobs([decision for _, _, step, _ in steps for decision in step]))
        for rollout, index, step, parent in steps:
            surprise = [-sum(tokens) / max(len(tokens), 1) for tokens in (next(logprobs) for _ in step)]
            state = states[rollout.instance].setdefault(parent, _State(origin=(rollout, index)))
            state.surprise.append(sum(surprise) / len(surprise))
            state.children = max(state.children, len(state.surprise))


def _choose(states: Collection[_State], number: int) -> list[tuple[Rollout, int]]:
    chosen = []
    for _ in range(number if states else 0):
        state = max(states, key=lambda candidate: candidate.priority)
        state.children += 1
        chosen.append(state.origin)
    return chosen


def _fresh_steps(rollout: Rollout) -> Iterator[tuple[int, tuple[Decision, ...], str]]:
    """The steps of trained roles that no earlier rollout has: the index of the first decision, the step,
    and the id of the previous step's first decision, empty at the start. A failed episode has none."""
    if rollout.episode.ending == Ending.ERROR:
        return
    index, parent = 0, ""
    for step in rollout.episode.steps:
        if index >= rollout.episode.prefix_length and not all(one.observed for one in step):
            yield index, step, parent
        index, parent = index + len(step), step[0].id
