"""The environment minesweeper of hf-credit as an OpenEnv environment."""

from .client import MinesweeperEnv
from .models import MinesweeperAction, MinesweeperObservation, MinesweeperState

__all__ = [
    "MinesweeperAction",
    "MinesweeperEnv",
    "MinesweeperObservation",
    "MinesweeperState",
]
