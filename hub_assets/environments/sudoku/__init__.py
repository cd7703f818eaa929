"""The environment sudoku of hf-credit as an OpenEnv environment."""

from .client import SudokuEnv
from .models import SudokuAction, SudokuObservation, SudokuState

__all__ = [
    "SudokuAction",
    "SudokuEnv",
    "SudokuObservation",
    "SudokuState",
]
