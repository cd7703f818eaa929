"""The environment circuit_decoding of hf-credit as an OpenEnv environment."""

from .client import CircuitDecodingEnv
from .models import CircuitDecodingAction, CircuitDecodingObservation, CircuitDecodingState

__all__ = [
    "CircuitDecodingAction",
    "CircuitDecodingEnv",
    "CircuitDecodingObservation",
    "CircuitDecodingState",
]
