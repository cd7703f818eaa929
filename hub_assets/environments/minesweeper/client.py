"""The client of the environment minesweeper, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import MinesweeperAction, MinesweeperObservation, MinesweeperState
except ImportError:  # imported from this folder, not installed
    from models import MinesweeperAction, MinesweeperObservation, MinesweeperState


class MinesweeperEnv(
    EnvClient[
        MinesweeperAction,
        MinesweeperObservation,
        MinesweeperState,
    ]
):
    """A session with the environment minesweeper."""

    def _step_payload(self, action: MinesweeperAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[MinesweeperObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = MinesweeperObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> MinesweeperState:
        return MinesweeperState(**payload)
