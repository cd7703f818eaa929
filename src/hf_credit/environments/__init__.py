"""Text worlds: the rules only."""

from __future__ import annotations

from typing import Any

from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.check import check_env
from hf_credit.registry import build

__all__ = ["ENVIRONMENTS", "Environment", "State", "Transition", "check_env", "make"]

ENVIRONMENTS = {
    "minesweeper": "hf_credit.environments.minesweeper:Minesweeper",
    "sudoku": "hf_credit.environments.sudoku:Sudoku",
    "tic_tac_toe": "hf_credit.environments.tic_tac_toe:TicTacToe",
}


def make(name: str, **options: Any) -> Environment[Any]:
    """The environment called `name`, with its options.

    Raises:
        ValueError: the name, an option or an option's value is not possible, in one sentence that names the rule,
            the value and the remedy.
    """
    environment: Environment[Any] = build("environment", ENVIRONMENTS, name, options)
    return environment
