"""The client of the environment tic_tac_toe, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import TicTacToeAction, TicTacToeObservation, TicTacToeState
except ImportError:  # imported from this folder, not installed
    from models import TicTacToeAction, TicTacToeObservation, TicTacToeState


class TicTacToeEnv(
    EnvClient[
        TicTacToeAction,
        TicTacToeObservation,
        TicTacToeState,
    ]
):
    """A session with the environment tic_tac_toe."""

    def _step_payload(self, action: TicTacToeAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TicTacToeObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = TicTacToeObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> TicTacToeState:
        return TicTacToeState(**payload)
