"""The hypotheses of each game of queries, given all feedback so far, and good play (paper T3, section 3.1)."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from itertools import combinations, permutations, product
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hf_credit.environments import circuit_decoding as circuits
from hf_credit.environments import preference_estimation as preferences
from hf_credit.environments.circuit_decoding import LABELS, CircuitDecodingState
from hf_credit.environments.guess_numbers import GuessNumbersState, alphabet, feedback
from hf_credit.environments.preference_estimation import THRESHOLD, PreferenceState, decimals, preference, query
from hf_credit.environments.queries import ANSWER, INTERACT, QueryState
from hf_credit.environments.situation_puzzles import SituationPuzzlesState
from hf_credit.verifiers.judges import NO, YES, folded

S = TypeVar("S", bound=QueryState)

MAX_LISTED = 200_000
"""The largest space of weights to list."""

_DRAWN = 2**14  # drawn weights that represent a space that is too large to list
_NEAR = float(THRESHOLD)  # an answer is right within this cosine


class Space(ABC, Generic[S]):
    """The hypotheses of one game that agree with all feedback so far."""

    @abstractmethod
    def members(self, state: S) -> list[Any]:
        """Returns all hypotheses, in a fixed order."""

    @abstractmethod
    def size(self, state: S) -> int:
        """Returns their number."""

    @abstractmethod
    def contains(self, state: S, hypothesis: Any) -> bool:
        """Returns whether a value is one of the hypotheses."""

    @abstractmethod
    def good_actions(self, state: S) -> frozenset[str]:
        """Returns the actions that `hf_credit.oracles.hypotheses.HypothesesOracle` accepts."""

    def normal(self, state: S, verb: str, content: str) -> str:
        """Returns an action in the spelling of `good_actions`; most games have one spelling."""
        return f"{verb} {content}"


# Spaces of parts


class _Parts(Space[S]):
    """A hypothesis is a tuple, and feedback excludes values of single parts."""

    @abstractmethod
    def left(self, state: S) -> list[list[Any]]:
        """For each part, the values that agree with all feedback so far."""

    def fit(self, state: S, hypothesis: tuple[Any, ...]) -> bool:
        """Whether possible parts are possible together."""
        return True

    def members(self, state: S) -> list[tuple[Any, ...]]:
        return [parts for parts in product(*self.left(state)) if self.fit(state, parts)]

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
    """CircuitDecoding: for each circuit, the numbers of the candidates that agree with its outputs.

    If circuits are known to differ, only combinations without repetition are possible.
    """

    def left(self, state: CircuitDecodingState) -> list[list[int]]:
        outputs = [(query, circuits.output(state, query)) for query in dict.fromkeys(state.queries)]
        return [
            [
                number
                for number, table in enumerate(circuits.tables(state.candidates, state.inputs), start=1)
                if all(circuits.bit(table, query[1:]) == value for query, value in outputs if query[0] == label)
            ]
            for label in LABELS[: len(state.hidden)]
        ]

    def fit(self, state: CircuitDecodingState, hypothesis: tuple[int, ...]) -> bool:
        return not state.distinct or len(set(hypothesis)) == len(hypothesis)

    def size(self, state: CircuitDecodingState) -> int:
        return _combinations(self.left(state), state.distinct)

    def good_actions(self, state: CircuitDecodingState) -> frozenset[str]:
        """The queries whose likelier answer leaves least, or the possible answers if it is time to answer."""
        left = self.left(state)
        if _combinations(left, state.distinct) == 1 or state.left == 1:
            return frozenset(f"{ANSWER} {', '.join(map(str, numbers))}" for numbers in self.members(state))
        found = circuits.tables(state.candidates, state.inputs)
        worst: dict[str, int] = {}
        for circuit, label in enumerate(LABELS[: len(left)]):
            for bits in map("".join, product("01", repeat=state.inputs)):
                parts = ([n for n in left[circuit] if circuits.bit(found[n - 1], bits) == value] for value in (0, 1))
                worst[circuits.written(f"{label}{bits}", state.brief)] = max(
                    _combinations([*left[:circuit], part, *left[circuit + 1 :]], state.distinct) for part in parts
                )
        return _least(worst)

    def normal(self, state: CircuitDecodingState, verb: str, content: str) -> str:
        if verb == INTERACT:
            query = circuits.read_query(state, content)
            return f"{verb} {content if query is None else circuits.written(query, state.brief)}"
        return f"{verb} {', '.join(number.strip() for number in content.split(','))}"


class Stories(_Parts[SituationPuzzlesState]):
    """Generated SituationPuzzles: for each part of the story, the words that agree with the judge."""

    def left(self, state: SituationPuzzlesState) -> list[list[str]]:
        if not state.slots:
            raise ValueError(
                "hypotheses are known for generated stories, got one without slots; use SituationPuzzles without a "
                "path."
            )
        topics = dict(zip(map(folded, state.questions), _topics(state), strict=True))
        left = [list(words) for words in state.slots]
        for question, reply in zip(state.queries, state.replies, strict=True):
            topic = topics.get(folded(question))
            if topic is not None and reply in (YES, NO):
                slot, word = topic
                left[slot] = [other for other in left[slot] if (other == word) == (reply == YES)]
        return left

    def good_actions(self, state: SituationPuzzlesState) -> frozenset[str]:
        """The questions whose likelier answer leaves least, or the possible stories if it is time to answer."""
        left = self.left(state)
        if all(len(words) <= 1 for words in left) or state.left == 1:
            stories = product(*(words or slot for words, slot in zip(left, state.slots, strict=True)))
            return frozenset(f"{ANSWER} {' '.join(story)}" for story in stories)
        # Asking for one of n words leaves n - 1 of them at worst, so the slot with the fewest words is split best.
        least = min(len(words) for words in left if len(words) > 1)
        good = {(slot, word) for slot, words in enumerate(left) if len(words) == least for word in words}
        questions = zip(_topics(state), state.questions, strict=True)
        return frozenset(f"{INTERACT} {question}" for topic, question in questions if topic in good)

    def normal(self, state: SituationPuzzlesState, verb: str, content: str) -> str:
        """Questions are told apart as by the judge; in answers case counts."""
        known = {folded(question): question for question in state.questions} if verb == INTERACT else {}
        return f"{verb} {known.get(folded(content), content)}"


# Spaces of rows


class _Rows(Space[S]):
    """Hypotheses are the rows of an array, and feedback excludes rows; masks of prefixes of it are cached."""

    def __init__(self, masks: int) -> None:
        self._mask = functools.lru_cache(maxsize=masks)(self._compute_mask)

    @abstractmethod
    def kind(self, state: S) -> Hashable:
        """The parameters of the array."""

    @abstractmethod
    def rows(self, kind: Any) -> NDArray[Any]:
        """All hypotheses before any feedback, in ascending order."""

    @abstractmethod
    def feedback(self, state: S) -> tuple[Any, ...]:
        """The feedback so far, each item with its query."""

    @abstractmethod
    def agree(self, kind: Any, rows: NDArray[Any], item: Any) -> NDArray[np.bool_]:
        """Which rows agree with one item of feedback."""

    @abstractmethod
    def named(self, kind: Any, rows: NDArray[Any]) -> list[Any]:
        """The hypotheses of rows."""

    def left(self, state: S) -> NDArray[Any]:
        """The rows that agree with all feedback so far."""
        kind = self.kind(state)
        return self.rows(kind)[self._mask(kind, self.feedback(state))]

    def members(self, state: S) -> list[Any]:
        return self.named(self.kind(state), self.left(state))

    def size(self, state: S) -> int:
        return len(self.left(state))

    def _compute_mask(self, kind: Any, items: tuple[Any, ...]) -> NDArray[np.bool_]:
        rows = self.rows(kind)
        if not items:
            return np.ones(len(rows), dtype=bool)
        return self._mask(kind, items[:-1]) & self.agree(kind, rows, items[-1])


class Numbers(_Rows[GuessNumbersState]):
    """GuessNumbers: the numbers of different digits, as texts, that agree with every guess, the given first included.

    The largest space has 30,240 members: five of ten digits.
    """

    def kind(self, state: GuessNumbersState) -> tuple[int, int]:
        return state.digits, state.symbols

    def rows(self, kind: tuple[int, int]) -> NDArray[np.int8]:
        return _number_rows(*kind)

    def feedback(self, state: GuessNumbersState) -> tuple[tuple[str, tuple[int, int]], ...]:
        guesses = (state.first_guess, *state.queries) if state.first_guess else state.queries
        return tuple((guess, feedback(guess, state.secret)) for guess in guesses)

    def agree(
        self, kind: tuple[int, int], rows: NDArray[np.int8], item: tuple[str, tuple[int, int]]
    ) -> NDArray[np.bool_]:
        guess, (right, elsewhere) = item
        digits = np.array([alphabet(kind[1]).index(digit) for digit in guess], dtype=np.int8)
        # The digits of a number differ, so each digit of the guess occurs at most once in it.
        common = np.isin(rows, digits).sum(axis=1)
        return ((rows == digits).sum(axis=1) == right) & (common == right + elsewhere)  # type: ignore[no-any-return]

    def named(self, kind: tuple[int, int], rows: NDArray[np.int8]) -> list[str]:
        symbols = alphabet(kind[1])
        return ["".join(symbols[digit] for digit in row) for row in rows.tolist()]

    def contains(self, state: GuessNumbersState, hypothesis: Any) -> bool:
        return (
            isinstance(hypothesis, str)
            and len(hypothesis) == len(set(hypothesis)) == state.digits
            and set(hypothesis) <= set(alphabet(state.symbols))
            and all(feedback(guess, hypothesis) == answer for guess, answer in self.feedback(state))
        )

    def good_actions(self, state: GuessNumbersState) -> frozenset[str]:
        """The guesses of possible numbers, or their answers if only one is left or the last reply is due."""
        possible = self.members(state)
        verb = ANSWER if len(possible) == 1 or state.left == 1 else INTERACT
        return frozenset(f"{verb} {number}" for number in possible)


class Weights(_Rows[PreferenceState]):
    """PreferenceEstimation and MovieRecommendation: the weights that agree with every answer.

    A hypothesis is a tuple of weights in units of 1/levels, as in the state; they are not all 0. Three weights in
    quarters have 124 hypotheses. The paper's eight in tenths have 11^8 - 1, too many to list: for these, `contains`
    works, `members` and `size` refuse, and `good_actions` uses drawn weights.
    """

    def kind(self, state: PreferenceState) -> tuple[int, int]:
        return len(state.weights), state.levels

    def rows(self, kind: tuple[int, int]) -> NDArray[Any]:
        count, levels = kind
        if not _fits(kind):
            raise ValueError(
                f"a listed space must have at most {MAX_LISTED} hypotheses, got {levels + 1} ** {count}; use fewer "
                "attributes or levels."
            )
        return _grid(count, levels)

    def feedback(self, state: PreferenceState) -> tuple[tuple[tuple[int, ...], int], ...]:
        """For each question so far, the difference of the two movies' scores, and the answer."""
        pairs = [(state.scores[first], state.scores[second]) for first, second in state.asked]
        return tuple((tuple(map(int.__sub__, *pair)), preference(state.weights, *pair)) for pair in pairs)

    def agree(self, kind: tuple[int, int], rows: NDArray[Any], item: tuple[tuple[int, ...], int]) -> NDArray[np.bool_]:
        difference, answer = item
        # Sums are far below 2^24, so single precision is exact.
        return np.sign(rows @ np.array(difference, dtype=np.float32)) == answer  # type: ignore[no-any-return]

    def named(self, kind: tuple[int, int], rows: NDArray[Any]) -> list[tuple[int, ...]]:
        return [tuple(row) for row in rows.astype(int).tolist()]

    def contains(self, state: PreferenceState, hypothesis: Any) -> bool:
        pairs = [(state.scores[first], state.scores[second]) for first, second in state.asked]
        return (
            isinstance(hypothesis, tuple)
            and len(hypothesis) == len(state.weights)
            and all(type(value) is int and 0 <= value <= state.levels for value in hypothesis)
            and any(hypothesis)
            and all(preference(hypothesis, *pair) == preference(state.weights, *pair) for pair in pairs)
        )

    def good_actions(self, state: PreferenceState) -> frozenset[str]:
        """The questions whose likeliest answer leaves least, with the mean of the possible weights as guess.

        The action is an answer if that mean would be right for all possible weights, if no question splits them, or
        with the last reply. In MovieRecommendation only the last reply answers, with a movie that is the best for most
        possible weights.
        """
        exact, possible = _fits(self.kind(state)), self._possible(state)
        mean = _mean(possible)
        guess = decimals(mean, state.levels)
        if state.left == 1 and state.unseen_names:
            votes = np.bincount((possible @ np.array(state.unseen_scores, dtype=np.float32).T).argmax(axis=1))
            return frozenset(f"{ANSWER} {state.unseen_names[best]}" for best in np.flatnonzero(votes == votes.max()))
        worst = _largest_parts(state, possible, guess)
        done = exact and (min(worst.values()) == len(possible) or _right(possible, mean) == len(possible))
        if state.left == 1 or (done and not state.unseen_names):
            return frozenset([f"{ANSWER} {guess}"])
        return _least(worst)

    def normal(self, state: PreferenceState, verb: str, content: str) -> str:
        """With the guess of `good_actions`: of a question, in either order of its movies, as its feedback depends on
        no guess, and of an answer that is right for at least as many possible weights."""
        possible = self._possible(state)
        mean = _mean(possible)
        asked = preferences.read_query(state, content)
        given = preferences.read_decimals(content, len(state.weights))
        if verb == INTERACT and asked is not None:
            content = query(decimals(mean, state.levels), *(state.names[place] for place in sorted(asked[1])))
        elif verb == ANSWER and given is not None and _right(possible, given) >= max(_right(possible, mean), 1):
            content = decimals(mean, state.levels)
        return f"{verb} {content}"

    def _possible(self, state: PreferenceState) -> NDArray[Any]:
        """The possible weights, or of too many the drawn ones that disagree with the fewest answers, usually none."""
        kind = self.kind(state)
        if _fits(kind):
            return self.left(state)
        drawn = _drawn(*kind)
        wrong = sum((~self.agree(kind, drawn, item) for item in self.feedback(state)), np.zeros(len(drawn), dtype=int))
        return drawn[wrong == wrong.min()]  # type: ignore[no-any-return]


SPACES: dict[type[QueryState], Space[Any]] = {
    CircuitDecodingState: Circuits(),
    GuessNumbersState: Numbers(masks=2**12),
    PreferenceState: Weights(masks=2**8),
    SituationPuzzlesState: Stories(),
}


def _least(worst: dict[str, int]) -> frozenset[str]:
    least = min(worst.values())
    return frozenset(f"{INTERACT} {query}" for query, rest in worst.items() if rest == least)


def _combinations(left: Sequence[Sequence[int]], distinct: bool) -> int:
    """Counts the combinations; if distinct, candidate by candidate, each assigned to at most one circuit."""
    if not distinct:
        return prod(map(len, left))
    counts = [1] + [0] * (2 ** len(left) - 1)  # by the set of circuits that have a candidate
    for number in functools.reduce(set.union, map(set, left)):
        takers = [1 << circuit for circuit, possible in enumerate(left) if number in possible]
        counts = [
            count + sum(counts[done ^ taker] for taker in takers if done & taker) for done, count in enumerate(counts)
        ]
    return counts[-1]


def _topics(state: SituationPuzzlesState) -> list[tuple[int, str]]:
    return [(slot, word) for slot, words in enumerate(state.slots) for word in words]


@functools.cache
def _number_rows(digits: int, symbols: int) -> NDArray[np.int8]:
    return np.array(list(permutations(range(symbols), digits)), dtype=np.int8)


def _largest_parts(state: PreferenceState, possible: NDArray[Any], guess: str) -> dict[str, int]:
    """For each question, the number of possible weights that its likeliest answer leaves."""
    values = possible @ np.array(state.scores, dtype=np.float32).T
    worst = {}
    for first, second in combinations(range(len(state.names)), 2):
        answers = np.sign(values[:, first] - values[:, second]).astype(int)
        worst[query(guess, state.names[first], state.names[second])] = int(np.bincount(answers + 1).max())
    return worst


def _mean(possible: NDArray[Any]) -> list[int]:
    """The rounded mean of weights, or the first ones if it is 0."""
    mean = np.rint(possible.mean(axis=0))
    return (mean if mean.any() else possible[0]).astype(int).tolist()  # type: ignore[no-any-return]


def _right(possible: NDArray[Any], answer: Sequence[int]) -> int:
    """For how many weights an answer is right."""
    norms = np.linalg.norm(possible, axis=1) * np.linalg.norm(answer)
    return int((possible @ np.array(answer) > (_NEAR + 1e-9) * norms).sum())


def _fits(kind: tuple[int, int]) -> bool:
    count, levels = kind
    return bool((levels + 1) ** count <= MAX_LISTED)


@functools.lru_cache(maxsize=8)
def _grid(count: int, levels: int) -> NDArray[Any]:
    return np.ascontiguousarray(np.indices((levels + 1,) * count).reshape(count, -1).T[1:], dtype=np.float32)


@functools.lru_cache(maxsize=8)
def _drawn(count: int, levels: int) -> NDArray[Any]:
    rows = np.random.default_rng(0).integers(0, levels + 1, size=(_DRAWN, count)).astype(np.float32)
    return rows[rows.any(axis=1)]
