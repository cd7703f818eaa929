"""The interaction of one agent with an OpenEnv server."""

from __future__ import annotations

from typing import Any

from hf_credit.environments.openenv_world import OpenEnvEnvironment
from hf_credit.rollouts import EnvironmentInteraction


class OpenEnvInteraction(EnvironmentInteraction):
    """One agent that plays an environment on an OpenEnv server; `environment: openenv` in a recipe.

    Args:
        url: the URL of the server.
        action_field: the field of the action that receives the text; the only required field if `None`.
        history, instructions, max_turns: as for `EnvironmentInteraction`.
        **options: other options of `hf_credit.environments.openenv_world.OpenEnvEnvironment`.

    Raises:
        ValueError: as in `OpenEnvEnvironment` and `EnvironmentInteraction`.
    """

    def __init__(
        self,
        url: str,
        action_field: str | None = None,
        *,
        history: str = "append",
        instructions: bool = True,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        environment = OpenEnvEnvironment(url, action_field, **options)
        super().__init__(environment, history, instructions, max_turns)

    def spec(self) -> dict[str, Any]:
        return EnvironmentInteraction(self.environment, self.history, self.instructions, self._own_limit).spec()

    def close(self) -> None:
        """Ends all sessions. A later step from a state opens a new session and restores the state there."""
        assert isinstance(self.environment, OpenEnvEnvironment)
        self.environment.close()
