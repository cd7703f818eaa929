"""Alternatives of one decision, found in the episodes that went through them (paper C3, 3.1 to 3.3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

from hf_credit.rollouts.episode import Decision, Ending, Episode


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A decision and the outcomes it led to.

    Attributes:
        place: the first episode that holds the decision, and where in it.
        decision: the decision.
        bucket: a number shared by the alternatives it is compared with.
        outcomes: of the episodes that went through it and did not fail; never empty.
    """

    place: tuple[int, int]
    decision: Decision
    bucket: int
    outcomes: tuple[float, ...]

    @property
    def mean_outcome(self) -> float:
        """The estimate of its value (eq. 11)."""
        return fmean(self.outcomes)


def alternatives(episodes: Sequence[Episode], match_contexts: bool = True) -> list[Alternative]:
    """Every decision with the outcomes under it, in the order of the episodes.

    Decisions of one start, event type and context share a bucket (eq. 9), however the episodes came to that context:
    when two upstream messages happen to be equal, what follows them is compared too. A decision under which every
    episode failed has no outcome and is left out.

    Args:
        episodes: the episodes of `Engine.run`, where those of one start share the decisions before a split.
        match_contexts: without, decisions share a bucket with all decisions of the same start, event type and
            occurrence, whatever their contexts (the ablation "w/o replay" of section 5.5).
    """
    outcomes: dict[int, list[float]] = defaultdict(list)
    places: dict[int, tuple[int, int]] = {}
    keys: dict[int, Hashable] = {}
    for row, episode in enumerate(episodes):
        occurrences: Counter[str] = Counter()
        for turn, decision in enumerate(episode.decisions):
            occurrences[decision.event] += 1
            matched = decision.context_ids if match_contexts else occurrences[decision.event]
            places.setdefault(id(decision), (row, turn))
            keys.setdefault(id(decision), (episode.start, decision.event, matched))
            if episode.ending != Ending.ERROR:
                outcomes[id(decision)].append(episode.outcome)
    numbers: dict[Hashable, int] = {}
    return [
        Alternative(
            place=place,
            decision=episodes[place[0]].decisions[place[1]],
            bucket=numbers.setdefault(keys[node], len(numbers)),
            outcomes=tuple(outcomes[node]),
        )
        for node, place in places.items()
        if outcomes[node]
    ]
