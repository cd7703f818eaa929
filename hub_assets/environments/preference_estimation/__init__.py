"""The environment preference_estimation of hf-credit as an OpenEnv environment."""

from .client import PreferenceEstimationEnv
from .models import PreferenceEstimationAction, PreferenceEstimationObservation, PreferenceEstimationState

__all__ = [
    "PreferenceEstimationAction",
    "PreferenceEstimationEnv",
    "PreferenceEstimationObservation",
    "PreferenceEstimationState",
]
