"""The environment guess_numbers of hf-credit as an OpenEnv environment."""

from .client import GuessNumbersEnv
from .models import GuessNumbersAction, GuessNumbersObservation, GuessNumbersState

__all__ = [
    "GuessNumbersAction",
    "GuessNumbersEnv",
    "GuessNumbersObservation",
    "GuessNumbersState",
]
