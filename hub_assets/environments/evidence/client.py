"""The client of the environment evidence, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import EvidenceAction, EvidenceObservation, EvidenceState
except ImportError:  # imported from this folder, not installed
    from models import EvidenceAction, EvidenceObservation, EvidenceState


class EvidenceEnv(
    EnvClient[
        EvidenceAction,
        EvidenceObservation,
        EvidenceState,
    ]
):
    """A session with the environment evidence."""

    def _step_payload(self, action: EvidenceAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[EvidenceObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = EvidenceObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> EvidenceState:
        return EvidenceState(**payload)
