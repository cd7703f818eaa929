"""Any OpenEnv environment as an Interaction."""

from __future__ import annotations

from typing import Any

from hf_credit.environments.openenv_world import OpenEnvEnvironment
from hf_credit.rollouts import EnvironmentInteraction


class OpenEnvInteraction(EnvironmentInteraction):
    """One agent that plays an OpenEnv environment wherever it is served; a recipe has it as `environment: openenv`.

    Args:
        url: of the server.
        action_field: of the action that takes the text; the only one that is needed if `None`.
        history, instructions, max_turns: as for `EnvironmentInteraction`.
        **options: the others of `hf_credit.environments.openenv_world.OpenEnvEnvironment`.

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
        """Ends all sessions; whoever goes on from a state has it restored in a new one."""
        assert isinstance(self.environment, OpenEnvEnvironment)
        self.environment.close()
