"""The client of the environment preference_estimation, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import PreferenceEstimationAction, PreferenceEstimationObservation, PreferenceEstimationState
except ImportError:  # imported from this folder, not installed
    from models import PreferenceEstimationAction, PreferenceEstimationObservation, PreferenceEstimationState


class PreferenceEstimationEnv(
    EnvClient[
        PreferenceEstimationAction,
        PreferenceEstimationObservation,
        PreferenceEstimationState,
    ]
):
    """A session with the environment preference_estimation."""

    def _step_payload(self, action: PreferenceEstimationAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[PreferenceEstimationObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = PreferenceEstimationObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> PreferenceEstimationState:
        return PreferenceEstimationState(**payload)
