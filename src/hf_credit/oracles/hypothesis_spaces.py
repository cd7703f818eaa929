"""What may be hidden in a game of queries, given all feedback so far, and how to play by it (paper T3, section 3.1).

Two mechanisms serve four games. Where a hypothesis has parts that feedback speaks of one by one, what is left is a
list for each part. Otherwise the hypotheses are the rows of an array, and feedback rules rows out.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from itertools import combinations, permutations, product
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hf_credit.environments.circuit_decoding import (
    LABELS,
    CircuitDecodingState,
    bit,
    output,
    read_query,
    tables,
    written,
)
from hf_credit.environments.guess_numbers import GuessNumbersState, alphabet, feedback
from hf_credit.environments.preference_estimation import PreferenceState, decimals, preference, query
from hf_credit.environments.queries import ANSWER, INTERACT, QueryState
from hf_credit.environments.situation_puzzles import SituationPuzzlesState
from hf_credit.verifiers.judges import NO, YES, folded

S = TypeVar("S", bound=QueryState)

MAX_LISTED = 200_000
"""The largest space of weights that is listed."""

_DRAWN = 2**14  # weights that stand for a space that is too large
_NEAR = 0.88  # an answer is right within this cosine (see preference_estimation.THRESHOLD)


class Space(ABC, Generic[S]):
    """The hypotheses of one game: in a state, those that agree with all feedback so far."""

    @abstractmethod
    def members(self, state: S) -> list[Any]:
        """All of them, in a fixed order."""

    @abstractmethod
    def size(self, state: S) -> int:
        """How many they are."""

    @abstractmethod
    def contains(self, state: S, hypothesis: Any) -> bool:
        """Whether one is among them; `False` for what is no hypothesis."""

    @abstractmethod
    def good_actions(self, state: S) -> frozenset[str]:
        """What somebody would do who knows them: see `hf_credit.oracles.hypotheses.HypothesesOracle`."""

    def normal(self, state: S, verb: str, content: str) -> str:
        """An action in the spelling that `good_actions` has; mostly its only one."""
        return f"{verb} {content}"


# Spaces of parts


class _Parts(Space[S]):
    """A hypothesis is a tuple, and feedback rules out values of its parts one by one."""

    @abstractmethod
    def left(self, state: S) -> list[list[Any]]:
        """For each part, the values that agree with all feedback so far."""

    def fit(self, state: S, hypothesis: tuple[Any, ...]) -> bool:
        """Whether parts that are possible one by one are possible together."""
        return True

    def members(self, state: S) -> list[tuple[Any, ...]]:
        return [one for one in product(*self.left(state)) if self.fit(state, one)]

    def size(self, state: S) -> int:
        return prod(map(len, self.left(state)))

    def contains(self, state: S, hypothesis: Any) -> bool:
        left = self.left(state)
        return (
            isinstance(hypothesis, tuple)
            and len(hypothesis) == len(left)
            and all(value in possible for value, possible in zip(hypothesis, left, strict=True))
            and self.fit(state, hypothesis)
        )


class Circuits(_Parts[CircuitDecodingState]):
    """CircuitDecoding: for each circuit the candidates that agree with its outputs, by their numbers.

    Where circuits are known to differ, only combinations without repetition are possible.
    """

    def left(self, state: CircuitDecodingState) -> list[list[int]]:
        found = tables(state.candidates, state.inputs)
        told = [(query, output(state, query)) for query in dict.fromkeys(state.queries)]
        return [
            [
                number
                for number, table in enumerate(found, start=1)
                if all(bit(table, query[1:]) == seen for query, seen in told if query[0] == label)
            ]
            for label in LABELS[: len(state.hidden)]
        ]

    def fit(self, state: CircuitDecodingState, hypothesis: tuple[int, ...]) -> bool:
        return not state.distinct or len(set(hypothesis)) == len(hypothesis)

    def size(self, state: CircuitDecodingState) -> int:
        return _combinations(self.left(state), state.distinct)

    def good_actions(self, state: CircuitDecodingState) -> frozenset[str]:
        """The queries whose likelier answer leaves least, or the possible answers where it is time to answer."""
        left = self.left(state)
        if _combinations(left, state.distinct) == 1 or state.left == 1:
            return frozenset(f"{ANSWER} {', '.join(map(str, one))}" for one in self.members(state))
        found = tables(state.candidates, state.inputs)
        worst: dict[str, int] = {}
        for circuit, label in enumerate(LABELS[: len(left)]):
            for bits in map("".join, product("01", repeat=state.inputs)):
                parts = ([n for n in left[circuit] if bit(found[n - 1], bits) == told] for told in (0, 1))
                worst[written(f"{label}{bits}", state.brief)] = max(
                    _combinations([*left[:circuit], part, *left[circuit + 1 :]], state.distinct) for part in parts
                )
        return _least(worst)

    def normal(self, state: CircuitDecodingState, verb: str, content: str) -> str:
        if verb == INTERACT:
            query = read_query(state, content)
            return f"{verb} {content if query is None else written(query, state.brief)}"
        return f"{verb} {', '.join(number.strip() for number in content.split(','))}"


class Stories(_Parts[SituationPuzzlesState]):
    """Generated SituationPuzzles: for each part of the story the words that agree with the judge."""

    def left(self, state: SituationPuzzlesState) -> list[list[str]]:
        if not state.slots:
            raise ValueError(
                "hypotheses are known of generated stories, got one without slots; take SituationPuzzles without a "
                "path."
            )
        about = dict(zip((folded(question) for question in state.questions), _places(state), strict=True))
        left = [list(words) for words in state.slots]
        for question, reply in zip(state.queries, state.replies, strict=True):
            place = about.get(folded(question))
            if place is not None and reply in (YES, NO):
                slot, word = place
                left[slot] = [other for other in left[slot] if (other == word) == (reply == YES)]
        return left

    def good_actions(self, state: SituationPuzzlesState) -> frozenset[str]:
        """The questions whose likelier answer leaves least, or the possible stories where it is time to answer."""
        left = self.left(state)
        if all(len(words) <= 1 for words in left) or state.left == 1:
            stories = product(*(words or all_of for words, all_of in zip(left, state.slots, strict=True)))
            return frozenset(f"{ANSWER} {' '.join(story)}" for story in stories)
        # Asking for one of n words leaves n - 1 of them at worst, so the slot with the fewest words is split best.
        least = min(len(words) for words in left if len(words) > 1)
        good = {(slot, word) for slot, words in enumerate(left) if len(words) == least for word in words}
        asked = zip(_places(state), state.questions, strict=True)
        return frozenset(f"{INTERACT} {question}" for place, question in asked if place in good)


# Spaces of rows


class _Rows(Space[S]):
    """Hypotheses are the rows of an array; what earlier feedback left of them is remembered.

    Args:
        remembered: how many states' masks are kept.
    """

    def __init__(self, remembered: int) -> None:
        self._agreeing = functools.lru_cache(maxsize=remembered)(self._left_by)

    @abstractmethod
    def kind(self, state: S) -> Hashable:
        """What the array depends on."""

    @abstractmethod
    def rows(self, kind: Any) -> NDArray[Any]:
        """All hypotheses before any feedback, in ascending order."""

    @abstractmethod
    def told(self, state: S) -> tuple[Any, ...]:
        """The feedback so far, each item with what it was the answer to."""

    @abstractmethod
    def agree(self, kind: Any, rows: NDArray[Any], told: Any) -> NDArray[np.bool_]:
        """Which rows one item of feedback leaves."""

    @abstractmethod
    def named(self, kind: Any, rows: NDArray[Any]) -> list[Any]:
        """The hypotheses that rows stand for."""

    def left(self, state: S) -> NDArray[Any]:
        """The rows that agree with all feedback so far."""
        kind = self.kind(state)
        rows: NDArray[Any] = self.rows(kind)[self._agreeing(kind, self.told(state))]
        return rows

    def members(self, state: S) -> list[Any]:
        return self.named(self.kind(state), self.left(state))

    def size(self, state: S) -> int:
        return len(self.left(state))

    def _left_by(self, kind: Any, told: tuple[Any, ...]) -> NDArray[np.bool_]:
        rows = self.rows(kind)
        if not told:
            return np.ones(len(rows), dtype=bool)
        mask: NDArray[np.bool_] = self._agreeing(kind, told[:-1]) & self.agree(kind, rows, told[-1])
        return mask


class Numbers(_Rows[GuessNumbersState]):
    """GuessNumbers: the numbers of different digits that agree with every guess, the first one included, as text.

    The largest space has 5,040 members, those of four of ten digits.
    """

    def kind(self, state: GuessNumbersState) -> tuple[int, int]:
        return state.digits, state.symbols

    def rows(self, kind: tuple[int, int]) -> NDArray[np.int8]:
        return _number_rows(*kind)

    def told(self, state: GuessNumbersState) -> tuple[tuple[str, tuple[int, int]], ...]:
        guesses = (state.first_guess, *state.queries) if state.first_guess else state.queries
        return tuple((guess, feedback(guess, state.secret)) for guess in guesses)

    def agree(
        self, kind: tuple[int, int], rows: NDArray[np.int8], told: tuple[str, tuple[int, int]]
    ) -> NDArray[np.bool_]:
        guess, (right, elsewhere) = told
        places = np.array([alphabet(kind[1]).index(digit) for digit in guess], dtype=np.int8)
        # The digits of a number differ, so each digit of the guess is in common once at most.
        common = np.isin(rows, places).sum(axis=1)
        mask: NDArray[np.bool_] = ((rows == places).sum(axis=1) == right) & (common == right + elsewhere)
        return mask

    def named(self, kind: tuple[int, int], rows: NDArray[np.int8]) -> list[str]:
        symbols = alphabet(kind[1])
        return ["".join(symbols[place] for place in row) for row in rows.tolist()]

    def contains(self, state: GuessNumbersState, hypothesis: Any) -> bool:
        return (
            isinstance(hypothesis, str)
            and len(hypothesis) == len(set(hypothesis)) == state.digits
            and set(hypothesis) <= set(alphabet(state.symbols))
            and all(feedback(guess, hypothesis) == seen for guess, seen in self.told(state))
        )

    def good_actions(self, state: GuessNumbersState) -> frozenset[str]:
        """To guess a number that is possible, and to answer it where it is the only one or the last reply is due."""
        possible = self.members(state)
        verb = ANSWER if len(possible) == 1 or state.left == 1 else INTERACT
        return frozenset(f"{verb} {number}" for number in possible)


class Weights(_Rows[PreferenceState]):
    """PreferenceEstimation and MovieRecommendation: the weights that agree with every answer.

    A hypothesis is a tuple of whole numbers of 1/levels, as the state keeps the weights; they are not all 0. Three
    weights in quarters are 124 hypotheses. The paper's eight in tenths are 11^8 - 1, too many to list: `contains`
    answers of these as well, `members` and `size` refuse, and `good_actions` goes by weights that are drawn instead.
    """

    def kind(self, state: PreferenceState) -> tuple[int, int]:
        return len(state.weights), state.levels

    def rows(self, kind: tuple[int, int]) -> NDArray[Any]:
        count, levels = kind
        if not _fits(kind):
            raise ValueError(
                f"hypotheses can be listed where there are at most {MAX_LISTED}, got {levels + 1} ** {count}; take "
                "fewer attributes or levels."
            )
        return _grid(count, levels)

    def told(self, state: PreferenceState) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Of each question so far the difference of the two movies' scores, and the answer."""
        pairs = [(state.scores[first], state.scores[second]) for first, second in state.asked]
        return tuple((tuple(map(int.__sub__, *pair)), preference(state.weights, *pair)) for pair in pairs)

    def agree(self, kind: tuple[int, int], rows: NDArray[Any], told: tuple[tuple[int, ...], int]) -> NDArray[np.bool_]:
        difference, answer = told
        # Sums are far below 2^24, so single precision is exact.
        mask: NDArray[np.bool_] = np.sign(rows @ np.array(difference, dtype=np.float32)) == answer
        return mask

    def named(self, kind: tuple[int, int], rows: NDArray[Any]) -> list[tuple[int, ...]]:
        return [tuple(row) for row in rows.astype(int).tolist()]

    def contains(self, state: PreferenceState, hypothesis: Any) -> bool:
        return (
            isinstance(hypothesis, tuple)
            and len(hypothesis) == len(state.weights)
            and all(type(value) is int and 0 <= value <= state.levels for value in hypothesis)
            and any(hypothesis)
            and all(
                preference(hypothesis, state.scores[first], state.scores[second])
                == preference(state.weights, state.scores[first], state.scores[second])
                for first, second in state.asked
            )
        )

    def good_actions(self, state: PreferenceState) -> frozenset[str]:
        """To ask one of the questions whose likeliest answer leaves least, with the mean of what is possible as guess.

        To answer when that mean would be right whatever is hidden, when no question splits, or with the last reply: in
        MovieRecommendation then, and only then, with a movie that is the best for most of what is possible.
        """
        exact = _fits(self.kind(state))
        possible = self.left(state) if exact else self._likeliest(state)
        mean = np.rint(possible.mean(axis=0))
        guess = decimals((mean if mean.any() else possible[0]).astype(int).tolist(), state.levels)
        if state.left == 1 and state.unseen_names:
            best = (possible @ np.array(state.unseen_scores, dtype=np.float32).T).argmax(axis=1)
            votes = np.bincount(best, minlength=len(state.unseen_names))
            return frozenset(
                f"{ANSWER} {name}" for name, own in zip(state.unseen_names, votes, strict=True) if own == votes.max()
            )
        worst = _largest_parts(state, possible, guess)
        done = exact and (min(worst.values()) == len(possible) or _all_near(possible, mean))
        if state.left == 1 or (done and not state.unseen_names):
            return frozenset([f"{ANSWER} {guess}"])
        return _least(worst)

    def _likeliest(self, state: PreferenceState) -> NDArray[Any]:
        """Of drawn weights, those that disagree with the fewest answers; mostly with none."""
        kind = self.kind(state)
        drawn = _drawn(*kind)
        wrong = sum((~self.agree(kind, drawn, one) for one in self.told(state)), np.zeros(len(drawn), dtype=int))
        likeliest: NDArray[Any] = drawn[wrong == wrong.min()]
        return likeliest


SPACES: dict[type[QueryState], Space[Any]] = {
    CircuitDecodingState: Circuits(),
    GuessNumbersState: Numbers(remembered=2**12),
    PreferenceState: Weights(remembered=2**8),
    SituationPuzzlesState: Stories(),
}


def _least(worst: dict[str, int]) -> frozenset[str]:
    """The queries that leave least at worst."""
    least = min(worst.values())
    return frozenset(f"{INTERACT} {query}" for query, rest in worst.items() if rest == least)


def _combinations(left: Sequence[Sequence[int]], distinct: bool) -> int:
    """How many there are; without repetition by going through the candidates, each taken by one circuit at most."""
    if not distinct:
        return prod(map(len, left))
    ways = [1] + [0] * (2 ** len(left) - 1)  # by the set of circuits that have a candidate
    for number in functools.reduce(set.union, map(set, left)):
        takers = [1 << circuit for circuit, possible in enumerate(left) if number in possible]
        ways = [
            already + sum(ways[done ^ taker] for taker in takers if done & taker) for done, already in enumerate(ways)
        ]
    return ways[-1]


def _places(state: SituationPuzzlesState) -> list[tuple[int, str]]:
    """The slot and the word that each known question is about."""
    return [(slot, word) for slot, words in enumerate(state.slots) for word in words]


@functools.cache
def _number_rows(digits: int, symbols: int) -> NDArray[np.int8]:
    """Every number, its digits by their places in the alphabet."""
    return np.array(list(permutations(range(symbols), digits)), dtype=np.int8)


def _largest_parts(state: PreferenceState, possible: NDArray[Any], guess: str) -> dict[str, int]:
    """Of each question, how many of the possible weights its likeliest answer leaves."""
    values = possible @ np.array(state.scores, dtype=np.float32).T
    worst = {}
    for first, second in combinations(range(len(state.names)), 2):
        told = np.sign(values[:, first] - values[:, second])
        parts = np.bincount(told.astype(int) + 1, minlength=3)
        worst[query(guess, state.names[first], state.names[second])] = int(parts.max())
    return worst


def _all_near(possible: NDArray[Any], mean: NDArray[Any]) -> bool:
    norms = np.linalg.norm(possible, axis=1) * np.linalg.norm(mean)
    return bool((possible @ mean > (_NEAR + 1e-9) * norms).all())


def _fits(kind: tuple[int, int]) -> bool:
    count, levels = kind
    return bool((levels + 1) ** count <= MAX_LISTED)


@functools.lru_cache(maxsize=8)
def _grid(count: int, levels: int) -> NDArray[Any]:
    """All weights but zero, in ascending order."""
    return np.ascontiguousarray(np.indices((levels + 1,) * count).reshape(count, -1).T[1:], dtype=np.float32)


@functools.lru_cache(maxsize=8)
def _drawn(count: int, levels: int) -> NDArray[Any]:
    rows = np.random.default_rng(0).integers(0, levels + 1, size=(_DRAWN, count)).astype(np.float32)
    return rows[rows.any(axis=1)]
