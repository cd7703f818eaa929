"""Decisions at the same context, with the outcomes of their episodes (paper C3, sections 3.1 to 3.3)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

from hf_credit.rollouts.episode import Decision, Ending, Episode


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A decision and the outcomes of its continuations.

    Attributes:
        place: the index of the first episode with the decision, and that of the decision in it.
        decision: the decision.
        bucket: the number of its bucket: alternatives of one bucket are compared with each other.
        episodes: the indices of the episodes that contain it and did not fail; never empty. Two alternatives that
            share one follow each other.
        outcomes: the clipped outcomes of these episodes.
        mean_outcome: the estimate of its value (eq. 11): the mean over the branches of each fork, from the last fork
            to the first, so that a branch with more forks has no more weight.
        count: number of its replays; an episode that ended before planned forks counts as all leaves of these.
    """

    place: tuple[int, int]
    decision: Decision
    bucket: int
    episodes: tuple[int, ...]
    outcomes: tuple[float, ...]
    mean_outcome: float
    count: int


def alternatives(
    episodes: Sequence[Episode],
    match_contexts: bool = True,
    instances: Sequence[int] | None = None,
    return_clip: float = math.inf,
) -> list[Alternative]:
    """Returns every decision with the outcomes of its continuations, in the order of the episodes.

    Decisions with the same instance, event type and context share a bucket (eq. 9), also if they follow different
    decisions with equal messages. A decision whose episodes all failed, or have no outcome, is omitted.

    Args:
        episodes: episodes from `Engine.run`; those of one request share the decisions before a fork.
        match_contexts: if false, decisions with the same instance, event type and occurrence share a bucket, also with
            different contexts (the ablation "w/o replay" of section 5.5).
        instances: the task of each episode; its `start` if `None`.
        return_clip: outcomes are clipped to [-return_clip, return_clip] before they are averaged (Appendix D).
    """
    leaves: dict[str, list[tuple[int, float]]] = defaultdict(list)
    places: dict[str, tuple[int, int]] = {}
    keys: dict[str, Hashable] = {}
    for row, episode in enumerate(episodes):
        instance = episode.start if instances is None else instances[row]
        occurrences: Counter[str] = Counter()
        for turn, decision in enumerate(episode.decisions):
            occurrences[decision.event] += 1
            matched = decision.context_ids if match_contexts else occurrences[decision.event]
            places.setdefault(decision.id, (row, turn))
            keys.setdefault(decision.id, (instance, decision.event, matched))
            if episode.ending != Ending.ERROR and not math.isnan(episode.outcome):
                outcome = max(-return_clip, min(return_clip, episode.outcome))
                leaves[decision.id].append((row, outcome))
    ids = [tuple(one.id for one in episode.decisions) for episode in episodes]
    numbers: dict[Hashable, int] = {}
    return [
        Alternative(
            place=place,
            decision=episodes[place[0]].decisions[place[1]],
            bucket=numbers.setdefault(keys[node], len(numbers)),
            episodes=tuple(row for row, _ in leaves[node]),
            outcomes=tuple(outcome for _, outcome in leaves[node]),
            mean_outcome=_value([(ids[row], outcome) for row, outcome in leaves[node]], place[1]),
            count=sum(episodes[row].num_leaves for row, _ in leaves[node]),
        )
        for node, place in places.items()
        if leaves[node]
    ]


def _value(leaves: Sequence[tuple[tuple[str, ...], float]], depth: int) -> float:
    """The mean over the branches of each fork, from the last fork to the first, of leaves with one first decision."""
    if len(leaves) == 1:
        return leaves[0][1]
    while len({ids[depth : depth + 1] for ids, _ in leaves}) == 1 and len(leaves[0][0]) > depth:
        depth += 1
    branches: dict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
    ended = []
    for branch, outcome in leaves:
        if len(branch) > depth:
            branches[branch[depth]].append((branch, outcome))
        else:
            ended.append(outcome)
    return fmean([*ended, *(_value(of_branch, depth + 1) for of_branch in branches.values())])
