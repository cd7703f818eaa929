"""The environment situation_puzzles of hf-credit as an OpenEnv environment."""

from .client import SituationPuzzlesEnv
from .models import SituationPuzzlesAction, SituationPuzzlesObservation, SituationPuzzlesState

__all__ = [
    "SituationPuzzlesAction",
    "SituationPuzzlesEnv",
    "SituationPuzzlesObservation",
    "SituationPuzzlesState",
]
