"""The hypotheses of GuessNumbers: the numbers of different digits that agree with every guess, the first one included.

A hypothesis is a number, as text. The largest space has 5,040 members, those of four of ten digits.
"""

from __future__ import annotations

import functools
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_credit.environments.guess_numbers import GuessNumbersState, alphabet, feedback
from hf_credit.environments.queries import ANSWER, INTERACT


def members(state: GuessNumbersState) -> list[str]:
    """The numbers that agree with all feedback so far, in ascending order."""
    mask = _mask(state)
    return [number for number, place in _numbers(state.digits, state.symbols)[2].items() if mask[place]]


def size(state: GuessNumbersState) -> int:
    """How many they are."""
    return int(_mask(state).sum())


def contains(state: GuessNumbersState, hypothesis: Any) -> bool:
    """Whether a number, as text, is among them."""
    place = _numbers(state.digits, state.symbols)[2].get(hypothesis) if isinstance(hypothesis, str) else None
    return place is not None and bool(_mask(state)[place])


def normal(state: GuessNumbersState, verb: str, content: str) -> str:
    """The spelling of an action that `good_actions` has: its only one."""
    return f"{verb} {content}"


def good_actions(state: GuessNumbersState) -> frozenset[str]:
    """To guess a number that is still possible, and to answer it where it is the only one or the last reply is due."""
    possible = members(state)
    verb = ANSWER if len(possible) == 1 or state.left == 1 else INTERACT
    return frozenset(f"{verb} {number}" for number in possible)


def _mask(state: GuessNumbersState) -> NDArray[np.bool_]:
    guesses = (state.first_guess, *state.queries) if state.first_guess else state.queries
    seen = tuple((guess, feedback(guess, state.secret)) for guess in guesses)
    return _agreeing(state.digits, state.symbols, seen)


@functools.lru_cache(maxsize=2**12)
def _agreeing(digits: int, symbols: int, seen: tuple[tuple[str, tuple[int, int]], ...]) -> NDArray[np.bool_]:
    """Which numbers agree with guesses and their feedback; what earlier guesses left is remembered."""
    numbers, has, _ = _numbers(digits, symbols)
    if not seen:
        return np.ones(len(numbers), dtype=bool)
    guess, (right, elsewhere) = seen[-1]
    places = [alphabet(symbols).index(digit) for digit in guess]
    same = (numbers == np.array(places, dtype=np.int8)).sum(axis=1)
    # The digits of a number differ, so each digit of the guess is in common once at most.
    common = has[:, sorted(set(places))].sum(axis=1)
    mask: NDArray[np.bool_] = _agreeing(digits, symbols, seen[:-1]) & (same == right) & (common == right + elsewhere)
    return mask


@functools.cache
def _numbers(digits: int, symbols: int) -> tuple[NDArray[np.int8], NDArray[np.bool_], dict[str, int]]:
    """Every number as places in the alphabet, which symbols it has, and its row by its text."""
    texts = ["".join(number) for number in permutations(alphabet(symbols), digits)]
    numbers = np.array([[alphabet(symbols).index(digit) for digit in text] for text in texts], dtype=np.int8)
    has = (numbers[:, :, None] == np.arange(symbols)).any(axis=1)
    return numbers, has, {text: place for place, text in enumerate(texts)}
