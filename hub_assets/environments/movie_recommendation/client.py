"""The client of the environment movie_recommendation, which needs only the package openenv."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

try:
    from .models import MovieRecommendationAction, MovieRecommendationObservation, MovieRecommendationState
except ImportError:  # imported from this folder, not installed
    from models import MovieRecommendationAction, MovieRecommendationObservation, MovieRecommendationState


class MovieRecommendationEnv(
    EnvClient[
        MovieRecommendationAction,
        MovieRecommendationObservation,
        MovieRecommendationState,
    ]
):
    """A session with the environment movie_recommendation."""

    def _step_payload(self, action: MovieRecommendationAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[MovieRecommendationObservation]:
        reward, done, metadata = payload.get("reward"), payload.get("done", False), payload.get("metadata")
        text = payload.get("observation", {}).get("text", "")
        observation = MovieRecommendationObservation(text=text, reward=reward, done=done, metadata=metadata or {})
        return StepResult(observation=observation, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> MovieRecommendationState:
        return MovieRecommendationState(**payload)
