"""The environment tic_tac_toe of hf-credit as an OpenEnv environment."""

from .client import TicTacToeEnv
from .models import TicTacToeAction, TicTacToeObservation, TicTacToeState

__all__ = [
    "TicTacToeAction",
    "TicTacToeEnv",
    "TicTacToeObservation",
    "TicTacToeState",
]
