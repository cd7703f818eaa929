"""The space H of the hidden values that agree with all feedback (paper T3, section 3.1), and an oracle by it."""

from __future__ import annotations

from typing import Any

from hf_credit.environments.queries import QueryEnvironment, QueryState, parse
from hf_credit.oracles.base import ValidSetOracle
from hf_credit.oracles.hypothesis_spaces import SPACES, Space


def space_of(state: QueryState) -> Space[Any]:
    """Returns the hypotheses of a state's game.

    Raises:
        ValueError: the game is unknown.
    """
    if type(state) not in SPACES:
        known = ", ".join(sorted(kind.__name__ for kind in SPACES))
        raise ValueError(
            f"hypotheses are known for states of the types {known}, got a {type(state).__name__}; use one of these."
        )
    return SPACES[type(state)]


def members(state: QueryState) -> list[Any]:
    """Returns H of a state, in a fixed order.

    Raises:
        ValueError: the game is unknown, or H is too large to list.
    """
    return space_of(state).members(state)


def size(state: QueryState) -> int:
    """Returns the number of hypotheses that agree with all feedback so far.

    Raises:
        ValueError: as for `members`.
    """
    return space_of(state).size(state)


def contains(state: QueryState, hypothesis: Any) -> bool:
    """Returns whether a hypothesis agrees with all feedback so far; `False` for any other value.

    Raises:
        ValueError: the game is unknown.
    """
    return space_of(state).contains(state, hypothesis)


class HypothesesOracle(ValidSetOracle[QueryState]):
    """Accepts answers if the answer is determined or the last reply is due, and good queries before.

    In GuessNumbers a good query is a guess that is still possible; elsewhere it is one that minimises the largest part
    of H that an answer can leave.
    """

    name = "hypotheses"
    environment_type = QueryEnvironment

    def valid_actions(self, state: QueryState) -> frozenset[str]:
        return space_of(state).good_actions(state) if state.status == "active" else frozenset()

    def score(self, state: QueryState, action: str) -> float:
        """Returns 1.0 if `action`, plain or as a reply, is in `valid_actions(state)` in any spelling, else 0.0.

        The guess and the order of two movies do not count, and other weights may be as good an answer.
        """
        parsed = parse(action)
        return float(parsed is not None and space_of(state).normal(state, *parsed) in self.valid_actions(state))
