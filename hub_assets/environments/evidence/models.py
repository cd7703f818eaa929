"""What the environment evidence is told, what it shows, and what it is."""

from __future__ import annotations

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class EvidenceAction(Action):
    """What the agent does."""

    action: str = Field(..., description="A plain action, or a reply that holds one", max_length=65536)


class EvidenceObservation(Observation):
    """What the agent sees. At reset, `metadata["instructions"]` holds the rules."""

    text: str = Field(..., description="What the agent sees")


class EvidenceState(State):
    """All that an episode is, for whoever trains; never to be shown to the agent."""

    environment_state: str = Field(default="", description="The whole state, as JSON; pass it to reset as it is")
    seed: int | None = Field(default=None, description="Of all that is random in the episode")
    split: str | None = Field(default=None, description="Of the task, where it has an index")
    index: int | None = Field(default=None, description="Of the task in its split")
