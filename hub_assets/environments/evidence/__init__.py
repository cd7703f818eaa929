"""The environment evidence of hf-credit as an OpenEnv environment."""

from .client import EvidenceEnv
from .models import EvidenceAction, EvidenceObservation, EvidenceState

__all__ = [
    "EvidenceAction",
    "EvidenceEnv",
    "EvidenceObservation",
    "EvidenceState",
]
