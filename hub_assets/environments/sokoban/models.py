"""The action, observation and state of the environment sokoban."""

from __future__ import annotations

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class SokobanAction(Action):
    """An action of the agent."""

    action: str = Field(..., description="A plain action, or a reply that contains one", max_length=65536)


class SokobanObservation(Observation):
    """An observation of the agent. After a reset, `metadata["instructions"]` holds the rules."""

    text: str = Field(..., description="The observation")


class SokobanState(State):
    """The complete state of an episode, for training; never show it to the agent."""

    environment_state: str = Field(default="", description="The state as JSON, which reset accepts unchanged")
    seed: int | None = Field(default=None, description="The seed of the episode")
    split: str | None = Field(default=None, description="The split of the task, if it has an index")
    index: int | None = Field(default=None, description="The index of the task in its split")
