"""Who knows the right move: search, constraints, posterior."""

from __future__ import annotations

from typing import Any

from hf_credit.oracles.base import Oracle, ValidSetOracle
from hf_credit.registry import build

__all__ = ["ORACLES", "Oracle", "ValidSetOracle", "make"]

ORACLES = {
    "mcts": "hf_credit.oracles.mcts:MCTSOracle",
    "minesweeper_posterior": "hf_credit.oracles.minesweeper_posterior:MinesweeperPosteriorOracle",
    "sudoku_constraints": "hf_credit.oracles.sudoku_constraints:SudokuConstraintsOracle",
}


def make(name: str, **options: Any) -> Oracle[Any]:
    """The oracle called `name`, with its options.

    Raises:
        ValueError: the name, an option or an option's value is not possible, in one sentence that names the rule,
            the value and the remedy.
    """
    oracle: Oracle[Any] = build("oracle", ORACLES, name, options)
    return oracle
