"""Alternatives of one decision, found in the episodes that contain them (paper C3, 3.1 to 3.3)."""

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
        place: the first episode that holds the decision, and where in it.
        decision: the decision.
        bucket: a number shared by the alternatives it is compared with.
        outcomes: of the episodes that contain it and did not fail, clipped; never empty.
        mean_outcome: the estimate of its value (eq. 11): the mean over its continuations, taken split by split, so
            that a continuation with more splits has no more weight.
        count: number of its replays; an episode that ended before it could split counts as many as it would have made.
    """

    place: tuple[int, int]
    decision: Decision
    bucket: int
    outcomes: tuple[float, ...]
    mean_outcome: float
    count: int


def alternatives(
    episodes: Sequence[Episode],
    match_contexts: bool = True,
    instances: Sequence[int] | None = None,
    return_clip: float = math.inf,
) -> list[Alternative]:
    """Every decision with the outcomes of its continuations, in the order of the episodes.

    Decisions of one instance, event type and context share a bucket (eq. 9), however the episodes reached this
    context: if two upstream messages are equal, decisions after them are compared too. A decision whose episodes all
    failed has no outcome and is omitted.

    Args:
        episodes: of `Engine.run`, where those of one start share the decisions before a split.
        match_contexts: without, decisions share a bucket with all decisions of the same instance, event type and
            occurrence, whatever their contexts (the ablation "w/o replay" of section 5.5).
        instances: the task of each episode; its start if `None`.
        return_clip: outcomes are clipped to [-return_clip, return_clip] before they are averaged (Appendix D).
    """
    leaves: dict[str, list[tuple[tuple[int, ...], float, int]]] = defaultdict(list)
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
            if episode.ending != Ending.ERROR:
                outcome = max(-return_clip, min(return_clip, episode.outcome))
                leaves[decision.id].append((episode.branch, outcome, episode.num_leaves))
    numbers: dict[Hashable, int] = {}
    return [
        Alternative(
            place=place,
            decision=episodes[place[0]].decisions[place[1]],
            bucket=numbers.setdefault(keys[node], len(numbers)),
            outcomes=tuple(outcome for _, outcome, _ in leaves[node]),
            mean_outcome=_value([(branch, outcome) for branch, outcome, _ in leaves[node]]),
            count=sum(num_leaves for _, _, num_leaves in leaves[node]),
        )
        for node, place in places.items()
        if leaves[node]
    ]


def _value(leaves: Sequence[tuple[tuple[int, ...], float]], depth: int = 0) -> float:
    """The mean of the branches at each split, from the last split to the first."""
    below: dict[int, list[tuple[tuple[int, ...], float]]] = defaultdict(list)
    ended = []
    for branch, outcome in leaves:
        if len(branch) > depth:
            below[branch[depth]].append((branch, outcome))
        else:
            ended.append(outcome)
    return fmean([*ended, *(_value(of_alternative, depth + 1) for of_alternative in below.values())])
