"""Constraint-based verification of Sudoku (paper VPR, section 2.2)."""

from __future__ import annotations

from hf_credit.environments.sudoku import Sudoku, SudokuState, fill_actions, solution_of
from hf_credit.oracles.base import ValidSetOracle


class SudokuConstraintsOracle(ValidSetOracle[SudokuState]):
    """A fill is valid if it puts the digit of the puzzle's one solution into an empty cell.

    A*(s) = { fill r c d : cell (r, c) is empty in s and d = G*(r, c) }, where G* is the one solution of the givens
    (paper VPR, section 2.2). Digits already filled wrongly do not count as evidence: the right digits of the other
    cells stay valid after a mistake.
    """

    name = "sudoku_constraints"
    environment_type = Sudoku

    def valid_actions(self, state: SudokuState) -> frozenset[str]:
        """The right fill of every empty cell; empty when the episode is over."""
        if state.status != "active":
            return frozenset()
        fills = fill_actions(state.size, state.notation)
        solution = solution_of(state.givens)
        return frozenset(fills[cell][int(solution[cell]) - 1] for cell, held in enumerate(state.cells) if held == ".")
