"""The environment sokoban of hf-credit as an OpenEnv environment."""

from .client import SokobanEnv
from .models import SokobanAction, SokobanObservation, SokobanState

__all__ = [
    "SokobanAction",
    "SokobanEnv",
    "SokobanObservation",
    "SokobanState",
]
