"""The hypotheses of generated SituationPuzzles: for each part of the story the words that agree with the judge.

A hypothesis is a tuple of words, one of each slot; H is the product over slots.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from hf_credit.environments.queries import ANSWER, INTERACT
from hf_credit.environments.situation_puzzles import SituationPuzzlesState
from hf_credit.verifiers.judges import NO, YES, folded


def members(state: SituationPuzzlesState) -> list[tuple[str, ...]]:
    """The stories that agree with all replies so far.

    Raises:
        ValueError: the story is not made of known parts.
    """
    return list(product(*words_left(state)))


def size(state: SituationPuzzlesState) -> int:
    """How many they are.

    Raises:
        ValueError: the story is not made of known parts.
    """
    return prod(map(len, words_left(state)))


def contains(state: SituationPuzzlesState, hypothesis: Any) -> bool:
    """Whether a story is among them.

    Raises:
        ValueError: the story is not made of known parts.
    """
    left = words_left(state)
    return (
        isinstance(hypothesis, tuple)
        and len(hypothesis) == len(left)
        and all(word in words for word, words in zip(hypothesis, left, strict=True))
    )


def normal(state: SituationPuzzlesState, verb: str, content: str) -> str:
    """The spelling of an action that `good_actions` has: its only one."""
    return f"{verb} {content}"


def good_actions(state: SituationPuzzlesState) -> frozenset[str]:
    """The questions whose likelier answer leaves least, or the possible stories where it is time to answer."""
    left = words_left(state)
    if all(len(words) <= 1 for words in left) or state.left == 1:
        stories = product(*(words or all_of for words, all_of in zip(left, state.slots, strict=True)))
        return frozenset(f"{ANSWER} {' '.join(story)}" for story in stories)
    # Asking for one of n words leaves n - 1 of them at worst, so the slot with the fewest words is split best.
    least = min(len(words) for words in left if len(words) > 1)
    good = {(slot, word) for slot, words in enumerate(left) if len(words) == least for word in words}
    asked = zip(_places(state), state.questions, strict=True)
    return frozenset(f"{INTERACT} {question}" for place, question in asked if place in good)


def words_left(state: SituationPuzzlesState) -> list[list[str]]:
    """Of each slot, the words that agree with all replies so far.

    Raises:
        ValueError: the story is not made of known parts.
    """
    if not state.slots:
        raise ValueError(
            "hypotheses are known of generated stories, got one without slots; take SituationPuzzles without a path."
        )
    about = dict(zip((folded(question) for question in state.questions), _places(state), strict=True))
    left = [list(words) for words in state.slots]
    for question, reply in zip(state.queries, state.replies, strict=True):
        place = about.get(folded(question))
        if place is not None and reply in (YES, NO):
            slot, word = place
            left[slot] = [other for other in left[slot] if (other == word) == (reply == YES)]
    return left


def _places(state: SituationPuzzlesState) -> list[tuple[int, str]]:
    """The slot and the word that each known question is about."""
    return [(slot, word) for slot, words in enumerate(state.slots) for word in words]
