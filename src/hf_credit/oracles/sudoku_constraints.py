"""Constraint-based verification of Sudoku (paper VPR, section 2.2)."""

from __future__ import annotations

import functools
import itertools
import math

from hf_credit.environments.sudoku import Notation, Sudoku, SudokuState, fill_actions, solution_of
from hf_credit.oracles.base import ValidSetOracle


class SudokuConstraintsOracle(ValidSetOracle[SudokuState]):
    """A fill is valid if it puts the digit of the puzzle's unique solution into an empty cell.

    A*(s) = { fill r c d : cell (r, c) is empty in s and d = G*(r, c) }, where G* is the unique solution of the givens
    (paper VPR, section 2.2). Wrong digits are no evidence: the right digits of the other cells stay valid after a
    mistake.
    """

    name = "sudoku_constraints"
    environment_type = Sudoku

    def valid_actions(self, state: SudokuState) -> frozenset[str]:
        if state.status != "active":
            return frozenset()
        empty = map(".".__eq__, state.cells)
        return frozenset(itertools.compress(_right_fills(state.givens, state.notation), empty))


@functools.lru_cache(maxsize=16384)
def _right_fills(givens: str, notation: Notation) -> tuple[str, ...]:
    fills = fill_actions(math.isqrt(len(givens)), notation)
    return tuple(of_cell[int(digit) - 1] for of_cell, digit in zip(fills, solution_of(givens), strict=True))
