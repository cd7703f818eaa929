"""The action, observation and state of the environment $name."""

from __future__ import annotations

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class ${prefix}Action(Action):
    """An action of the agent."""

    action: str = Field(..., description="A plain action, or a reply that contains one", max_length=65536)


class ${prefix}Observation(Observation):
    """An observation of the agent. After a reset, `metadata["instructions"]` holds the rules."""

    text: str = Field(..., description="The observation")


class ${prefix}State(State):
    """The complete state of an episode, for training; never show it to the agent."""

    environment_state: str = Field(default="", description="The state as JSON, which reset accepts unchanged")
    seed: int | None = Field(default=None, description="The seed of the episode")
    split: str | None = Field(default=None, description="The split of the task, if it has an index")
    index: int | None = Field(default=None, description="The index of the task in its split")
