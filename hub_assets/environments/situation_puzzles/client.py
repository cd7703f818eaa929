"""The client of the environment situation_puzzles, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import SituationPuzzlesAction, SituationPuzzlesObservation, SituationPuzzlesState
except ImportError:  # imported from this folder, not installed
    from models import SituationPuzzlesAction, SituationPuzzlesObservation, SituationPuzzlesState


class SituationPuzzlesEnv(
    EnvClient[
        SituationPuzzlesAction,
        SituationPuzzlesObservation,
        SituationPuzzlesState,
    ]
):
    """A session with the environment situation_puzzles."""

    def _step_payload(self, action: SituationPuzzlesAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SituationPuzzlesObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = SituationPuzzlesObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> SituationPuzzlesState:
        return SituationPuzzlesState(**payload)
