"""Search-based verification of Sokoban (VPR's public code, thu-nics/VPR@7fa8008)."""

from __future__ import annotations

from hf_credit.environments.actions import plain_action
from hf_credit.environments.sokoban import Sokoban, SokobanState, after, left
from hf_credit.oracles.base import ACCEPTED_ABOVE, ValidSetOracle
from hf_credit.validators import finite_number


class SokobanSearchOracle(ValidSetOracle[SokobanState]):
    """A move is valid if it begins a shortest solution.

    A*(s) = { m : D(s') = D(s) - 1 }, with s' the position after m and D the exact number of moves to a solution
    (`hf_credit.environments.sokoban.distances`).

    Args:
        solvable: the score of another move after which the room can still be solved, in [0, 1]: 0.5 gives the three
            rewards of the public code, 2, 0 and -2, scaled to 1, 0.5 and 0; above 0.5 these moves are valid, too.

    Raises:
        ValueError: `solvable` is out of range.
    """

    name = "sokoban_search"
    environment_type = Sokoban

    def __init__(self, solvable: float = 0.0) -> None:
        self.solvable = finite_number("solvable", solvable, 0, most=1)

    def valid_actions(self, state: SokobanState) -> frozenset[str]:
        return frozenset(move for move, score in self._scores(state).items() if score > ACCEPTED_ABOVE)

    def score(self, state: SokobanState, action: str) -> float:
        plain = plain_action(action)
        return float(sum(score for move, score in self._scores(state).items() if move == plain))

    def _scores(self, state: SokobanState) -> dict[str, float]:
        moves = left(state.board) if state.status == "active" else None
        if moves is None:
            return {}
        later = {move: left(board) for move, board in after(state).items()}
        return {move: 0.0 if one is None else 1.0 if one < moves else self.solvable for move, one in later.items()}
