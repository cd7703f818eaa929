"""The client of the environment $name, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import ${prefix}Action, ${prefix}Observation, ${prefix}State
except ImportError:  # imported from this folder, not installed
    from models import ${prefix}Action, ${prefix}Observation, ${prefix}State


class ${prefix}Env(
    EnvClient[
        ${prefix}Action,
        ${prefix}Observation,
        ${prefix}State,
    ]
):
    """A session with the environment $name."""

    def _step_payload(self, action: ${prefix}Action) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[${prefix}Observation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = ${prefix}Observation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> ${prefix}State:
        return ${prefix}State(**payload)
