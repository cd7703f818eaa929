"""The client of the environment sokoban, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import SokobanAction, SokobanObservation, SokobanState
except ImportError:  # imported from this folder, not installed
    from models import SokobanAction, SokobanObservation, SokobanState


class SokobanEnv(
    EnvClient[
        SokobanAction,
        SokobanObservation,
        SokobanState,
    ]
):
    """A session with the environment sokoban."""

    def _step_payload(self, action: SokobanAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SokobanObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = SokobanObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> SokobanState:
        return SokobanState(**payload)
