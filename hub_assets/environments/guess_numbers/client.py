"""The client of the environment guess_numbers, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import GuessNumbersAction, GuessNumbersObservation, GuessNumbersState
except ImportError:  # imported from this folder, not installed
    from models import GuessNumbersAction, GuessNumbersObservation, GuessNumbersState


class GuessNumbersEnv(
    EnvClient[
        GuessNumbersAction,
        GuessNumbersObservation,
        GuessNumbersState,
    ]
):
    """A session with the environment guess_numbers."""

    def _step_payload(self, action: GuessNumbersAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[GuessNumbersObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = GuessNumbersObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> GuessNumbersState:
        return GuessNumbersState(**payload)
