"""What is still possible in a game of queries: the hypothesis space H of paper T3 (section 3.1), and who plays by it.

A hypothesis is what could be hidden, given the first observation; H holds those that agree with all feedback so far.
`hf_credit.oracles.hypothesis_spaces` says what a hypothesis is in each game.
"""

from __future__ import annotations

from typing import Any

from hf_credit.environments.queries import QueryEnvironment, QueryState, parse
from hf_credit.oracles.base import ValidSetOracle
from hf_credit.oracles.hypothesis_spaces import SPACES, Space


def space_of(state: QueryState) -> Space[Any]:
    """The hypotheses of a state's game.

    Raises:
        ValueError: they are not known.
    """
    if type(state) not in SPACES:
        known = ", ".join(sorted(one.__name__ for one in SPACES))
        raise ValueError(
            f"hypotheses are known of states of the types {known}, got a {type(state).__name__}; take one of these."
        )
    return SPACES[type(state)]


def members(state: QueryState) -> list[Any]:
    """H of a state, in a fixed order.

    Raises:
        ValueError: the game is unknown, or H is too large to be listed.
    """
    return space_of(state).members(state)


def size(state: QueryState) -> int:
    """The number of hypotheses that agree with all feedback so far.

    Raises:
        ValueError: as for `members`.
    """
    return space_of(state).size(state)


def contains(state: QueryState, hypothesis: Any) -> bool:
    """Whether a hypothesis is possible and agrees with all feedback so far; `False` for what is none.

    Raises:
        ValueError: the game is unknown.
    """
    return space_of(state).contains(state, hypothesis)


class HypothesesOracle(ValidSetOracle[QueryState]):
    """Valid is to answer as soon as the answer is determined or the last reply is due, and a good query before.

    What a good query is depends on the game: a guess that is still possible in GuessNumbers, elsewhere one that
    splits H best, so that the largest part that an answer to it can leave is the smallest.
    """

    name = "hypotheses"
    environment_type = QueryEnvironment

    def valid_actions(self, state: QueryState) -> frozenset[str]:
        """The good actions; empty when the episode is over."""
        return space_of(state).good_actions(state) if state.status == "active" else frozenset()

    def score(self, state: QueryState, action: str) -> float:
        """1.0 if `action`, plain or as a reply, is in `valid_actions(state)` in any spelling, else 0.0."""
        act = parse(action)
        return float(act is not None and space_of(state).normal(state, *act) in self.valid_actions(state))
