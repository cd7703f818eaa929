"""The environment movie_recommendation of hf-credit as an OpenEnv environment."""

from .client import MovieRecommendationEnv
from .models import MovieRecommendationAction, MovieRecommendationObservation, MovieRecommendationState

__all__ = [
    "MovieRecommendationAction",
    "MovieRecommendationEnv",
    "MovieRecommendationObservation",
    "MovieRecommendationState",
]
