"""Episodes, and then others from their states, chosen round by round."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from hf_credit.collectors.base import Group, Rollout, RolloutBatch, Single, TaskRow
from hf_credit.options import Count, GroupSize, Options, Range
from hf_credit.rollouts import Decision, Ending, RolloutRequest, replay_from
from hf_credit.rollouts.method_context import MethodContext

FORK = "fork"


def fork(origins: Sequence[tuple[Rollout, int]], seeds: Sequence[int], context: MethodContext) -> list[Rollout]:
    """New episodes from the state before a recorded decision.

    Each also contains the earlier decisions, which it shares with the original episode, and its `source` is the
    recorded decision.

    Args:
        origins: a rollout and the index of one of its decisions, for each; there may be none.
        seeds: of the randomness ahead of each.
        context: plays.
    """
    starts: list[RolloutRequest[Any]] = [
        replay_from(context.interaction, context.chat, rollout.episode, index, seed=seed)
        for (rollout, index), seed in zip(origins, seeds, strict=True)
    ]
    forks = []
    for played in context.play(starts):
        rollout, index = origins[played.start]
        before = rollout.episode.decisions[:index]
        episode = replace(played, decisions=(*before, *played.decisions), prefix_length=index, start=rollout.instance)
        source = rollout.episode.decisions[index].id
        forks.append(Rollout(episode=episode, instance=rollout.instance, kind=FORK, source=source))
    return forks


def tree_numbers(collected: RolloutBatch) -> list[int]:
    """The tree of each trained rollout: one for each episode that was played from the start, and its forks'.

    Forks follow the episodes that they come from.
    """
    of_decision: dict[str, int] = {}
    numbers = []
    for place, rollout in enumerate(collected.trained):
        number = of_decision.get(rollout.source, place)
        numbers.append(number)
        for decision in rollout.episode.decisions:
            of_decision.setdefault(decision.id, number)
    return numbers


@dataclass(frozen=True, kw_only=True)
class RandomForks(Options):
    """Several trees for each task row: an episode each, expanded at random (Tree-GRPO, arXiv:2509.21240).

    In each round, `expansions` of the decisions of a tree are drawn, and a new episode is played from the state before
    each of them. An instance thus plays trees * (1 + rounds * expansions) episodes, or fewer if a tree has too few
    decisions; a fork costs only the tokens after it.

    Args:
        trees: for each task row.
        expansions: forks of each tree in each round.
        rounds: of forking, one after the other.

    Raises:
        ValueError: a number is below 1.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "trees"})

    trees: Count = 2
    expansions: Count = 2
    rounds: Count = 1
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = (Single() if self.trees == 1 else Group(size=self.trees))(rows, context, memory)
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
    """A state in the episodes of an instance.

    Attributes:
        origin: its first occurrence: a rollout, and the index of its decision there.
        surprise: for each step taken from it, its negative log-probability.
        children: number of steps taken from it, including those to be played.
    """

    origin: tuple[Rollout, int]
    surprise: list[float] = field(default_factory=list)
    children: int = 0

    @property
    def priority(self) -> float:
        return sum(self.surprise) / len(self.surprise) / self.children


@dataclass(frozen=True, kw_only=True)
class UncertainForks(Options):
    """Episodes of each task row, then forks where the policy is least certain (CARL, arXiv:2512.04949).

    The next fork is at the state of the instance with the largest H / n, where H is the mean over the steps that were
    taken from it of -log p per token, in nats, and n is their number. The first states of an instance's episodes are
    one state.

    Args:
        initial: episodes from the start.
        forks: of each instance.
        forks_per_round: number of forks to choose before playing them; the paper has 1, more is faster.

    Raises:
        ValueError: a number is too low.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"groups", "alternatives", "trees"})

    initial: GroupSize = 4
    forks: Annotated[int, Range(0)] = 16
    forks_per_round: Count = 1
    replaying: ClassVar[bool] = True

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = Group(size=self.initial)(rows, context, memory)
        known: list[dict[str, _State]] = [{} for _ in rows]  # by the decision before; none before the first state
        fresh = collected.rollouts
        for number in range(math.ceil(self.forks / self.forks_per_round)):
            self._look(fresh, known, context)
            left = min(self.forks_per_round, self.forks - number * self.forks_per_round)
            origins = [origin for states in known for origin in _choose(states.values(), left)]
            seeds = range(len(collected.rollouts), len(collected.rollouts) + len(origins))
            fresh = tuple(fork(origins, seeds, context))
            collected = replace(collected, rollouts=(*collected.rollouts, *fresh))
        return collected

    def _look(self, fresh: Sequence[Rollout], known: list[dict[str, _State]], context: MethodContext) -> None:
        """Adds the steps of new rollouts."""
        taken = [(rollout, *found) for rollout in fresh for found in _fresh_steps(rollout)]
        logprobs = iter(context.logprobs([decision for _, _, step, _ in taken for decision in step]))
        for rollout, index, step, above in taken:
            surprise = [-sum(own) / max(len(own), 1) for own in (next(logprobs) for _ in step)]
            state = known[rollout.instance].setdefault(above, _State(origin=(rollout, index)))
            state.surprise.append(sum(surprise) / len(surprise))
            state.children = max(state.children, len(state.surprise))


def _choose(states: Collection[_State], number: int) -> list[tuple[Rollout, int]]:
    """Where an instance forks next."""
    chosen = []
    for _ in range(number if states else 0):
        state = max(states, key=lambda one: one.priority)
        state.children += 1
        chosen.append(state.origin)
    return chosen


def _fresh_steps(rollout: Rollout) -> Iterator[tuple[int, tuple[Decision, ...], str]]:
    """The steps that no earlier rollout holds: the index of the first decision, the step, and the id of the decision
    before it, the first of its step; empty at the start. There are none in an episode that failed."""
    if rollout.episode.ending == Ending.ERROR:
        return
    index, above = 0, ""
    for step in rollout.episode.steps:
        if index >= rollout.episode.prefix_length:
            yield index, step, above
        index, above = index + len(step), step[0].id
