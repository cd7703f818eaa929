"""The client of the environment sudoku, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import SudokuAction, SudokuObservation, SudokuState
except ImportError:  # imported from this folder, not installed
    from models import SudokuAction, SudokuObservation, SudokuState


class SudokuEnv(
    EnvClient[
        SudokuAction,
        SudokuObservation,
        SudokuState,
    ]
):
    """A session with the environment sudoku."""

    def _step_payload(self, action: SudokuAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SudokuObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = SudokuObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> SudokuState:
        return SudokuState(**payload)
