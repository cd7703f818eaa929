"""The hypotheses of PreferenceEstimation and MovieRecommendation: the weights that agree with every answer.

A hypothesis is a tuple of whole numbers of 1/levels, as the state keeps the weights; they are not all 0. Three weights
in quarters are 124 hypotheses. The paper's eight in tenths are 11^8 - 1, too many to list: `contains` answers of these
as well, `members` and `size` refuse, and `good_actions` goes by weights that are drawn instead.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_credit.environments.preference_estimation import PreferenceState, decimals, preference, query
from hf_credit.environments.queries import ANSWER, INTERACT

MAX_LISTED = 200_000
"""The largest space that is listed."""

_DRAWN = 2**14  # weights that stand for a space that is too large
_NEAR = 0.88  # an answer is right within this cosine (see preference_estimation.THRESHOLD)


def members(state: PreferenceState) -> list[tuple[int, ...]]:
    """The weights that agree with all answers so far, in ascending order.

    Raises:
        ValueError: the space is too large to be listed.
    """
    weights = _listed(state)
    return [tuple(row) for row in weights[_agreeing(state, weights)].astype(int).tolist()]


def size(state: PreferenceState) -> int:
    """How many they are.

    Raises:
        ValueError: the space is too large to be listed.
    """
    return int(_agreeing(state, _listed(state)).sum())


def contains(state: PreferenceState, hypothesis: Any) -> bool:
    """Whether weights are among them; of a space of any size."""
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


def normal(state: PreferenceState, verb: str, content: str) -> str:
    """The spelling of an action that `good_actions` has: its only one."""
    return f"{verb} {content}"


def good_actions(state: PreferenceState) -> frozenset[str]:
    """To ask one of the questions whose likeliest answer leaves least, with the mean of what is possible as the guess.

    To answer when that mean would be right whatever is hidden, when no question splits, or with the last reply: in
    MovieRecommendation then, and only then, with a movie that is the best for most of what is possible.
    """
    weights, exact = (_grid(len(state.weights), state.levels), True) if _fits(state) else (_sample(state), False)
    possible = weights[_agreeing(state, weights)]
    if not len(possible):  # a drawn sample may hold nothing that agrees
        possible = weights[_disagreements(state, weights) == _disagreements(state, weights).min()]
    mean = np.rint(possible.mean(axis=0))
    guess = decimals((mean if mean.any() else possible[0]).astype(int).tolist(), state.levels)
    if state.left == 1 and state.unseen_names:
        best = np.bincount(
            (possible @ np.array(state.unseen_scores, dtype=np.float32).T).argmax(axis=1),
            minlength=len(state.unseen_names),
        )
        return frozenset(
            f"{ANSWER} {name}" for name, votes in zip(state.unseen_names, best, strict=True) if votes == best.max()
        )
    worst = _largest_parts(state, possible)
    done = exact and (min(worst.values()) == len(possible) or _all_near(possible, mean))
    if state.left == 1 or (done and not state.unseen_names):
        return frozenset([f"{ANSWER} {guess}"])
    least = min(worst.values())
    return frozenset(f"{INTERACT} {query(guess, *pair)}" for pair, rest in worst.items() if rest == least)


def _largest_parts(state: PreferenceState, possible: NDArray[Any]) -> dict[tuple[str, str], int]:
    """Of each question, how many of the possible weights its likeliest answer leaves."""
    values = possible @ np.array(state.scores, dtype=np.float32).T
    worst = {}
    for first in range(len(state.names)):
        for second in range(first + 1, len(state.names)):
            told = np.sign(values[:, first] - values[:, second])
            parts = np.bincount(told.astype(int) + 1, minlength=3)
            worst[state.names[first], state.names[second]] = int(parts.max())
    return worst


def _all_near(possible: NDArray[Any], mean: NDArray[Any]) -> bool:
    norms = np.linalg.norm(possible, axis=1) * np.linalg.norm(mean)
    return bool((possible @ mean > (_NEAR + 1e-9) * norms).all())


def _agreeing(state: PreferenceState, weights: NDArray[Any]) -> NDArray[np.bool_]:
    if not _fits(state):
        mask: NDArray[np.bool_] = _disagreements(state, weights) == 0
        return mask
    return _grid_agreeing(len(state.weights), state.levels, tuple(_told(state)))


def _told(state: PreferenceState) -> list[tuple[tuple[int, ...], int]]:
    """Of each question so far the difference of the two movies' scores, and the answer."""
    pairs = [(state.scores[first], state.scores[second]) for first, second in state.asked]
    return [(tuple(map(int.__sub__, *pair)), preference(state.weights, *pair)) for pair in pairs]


@functools.lru_cache(maxsize=2**8)
def _grid_agreeing(count: int, levels: int, told: tuple[tuple[tuple[int, ...], int], ...]) -> NDArray[np.bool_]:
    """Which weights of the grid agree with answers; what earlier ones left is remembered."""
    grid = _grid(count, levels)
    if not told:
        return np.ones(len(grid), dtype=bool)
    mask: NDArray[np.bool_] = _grid_agreeing(count, levels, told[:-1]) & (
        _answers(grid, [told[-1][0]])[:, 0] == told[-1][1]
    )
    return mask


def _answers(weights: NDArray[Any], differences: Any) -> NDArray[Any]:
    """What each row of weights answers; sums are far below 2^24, so single precision is exact."""
    found: NDArray[Any] = np.sign(weights @ np.array(differences, dtype=np.float32).T)
    return found


def _disagreements(state: PreferenceState, weights: NDArray[Any]) -> NDArray[Any]:
    """How many of the answers so far each row of weights would have given otherwise."""
    told = _told(state)
    if not told:
        return np.zeros(len(weights), dtype=int)
    found: NDArray[Any] = (_answers(weights, [one for one, _ in told]) != [answer for _, answer in told]).sum(axis=1)
    return found


def _fits(state: PreferenceState) -> bool:
    return bool((state.levels + 1) ** len(state.weights) <= MAX_LISTED)


def _listed(state: PreferenceState) -> NDArray[Any]:
    if not _fits(state):
        raise ValueError(
            f"hypotheses can be listed where there are at most {MAX_LISTED}, got {state.levels + 1} ** "
            f"{len(state.weights)}; take fewer attributes or levels."
        )
    return _grid(len(state.weights), state.levels)


@functools.lru_cache(maxsize=8)
def _grid(count: int, levels: int) -> NDArray[Any]:
    """All weights but zero, in ascending order."""
    return np.ascontiguousarray(np.indices((levels + 1,) * count).reshape(count, -1).T[1:], dtype=np.float32)


def _sample(state: PreferenceState) -> NDArray[Any]:
    return _drawn(len(state.weights), state.levels)


@functools.lru_cache(maxsize=8)
def _drawn(count: int, levels: int) -> NDArray[Any]:
    rows = np.random.default_rng(0).integers(0, levels + 1, size=(_DRAWN, count)).astype(np.float32)
    return rows[rows.any(axis=1)]
