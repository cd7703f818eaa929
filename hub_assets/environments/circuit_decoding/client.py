"""The client of the environment circuit_decoding, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import CircuitDecodingAction, CircuitDecodingObservation, CircuitDecodingState
except ImportError:  # imported from this folder, not installed
    from models import CircuitDecodingAction, CircuitDecodingObservation, CircuitDecodingState


class CircuitDecodingEnv(
    EnvClient[
        CircuitDecodingAction,
        CircuitDecodingObservation,
        CircuitDecodingState,
    ]
):
    """A session with the environment circuit_decoding."""

    def _step_payload(self, action: CircuitDecodingAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CircuitDecodingObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = CircuitDecodingObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> CircuitDecodingState:
        return CircuitDecodingState(**payload)
