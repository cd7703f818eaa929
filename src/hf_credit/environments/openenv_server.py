"""Serves an environment with OpenEnv's server, in the Spaces that `hf_credit.hub.spaces` creates.

The image of a server needs openenv, and hf-credit without its dependencies: no torch.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment as Server
from openenv.core.env_server.types import EnvironmentMetadata

from hf_credit._version import __version__
from hf_credit.content import text_of
from hf_credit.environments import Environment, State, make
from hf_credit.environments.tasks import SEEDS_PER_SPLIT, task_seed
from hf_credit.safe_io import read_yaml

MOST_LISTED = 100
"""The most tasks in one list."""

_SESSIONS = 256


def serve(declaration: Path, action: type, observation: type, state: type) -> Any:
    """The ASGI application that serves an environment, with one session per WebSocket.

    Args:
        declaration: the Space's `openenv.yaml`, whose `hf_credit` names the environment and its options.
        action: a pydantic model with the text field `action`.
        observation: a pydantic model with the field `text`.
        state: a pydantic model with the fields `environment_state`, `seed`, `split` and `index`.

    Raises:
        ValueError: as for `hf_credit.make`.
    """
    named = read_yaml(declaration)["hf_credit"]
    environment = make(named["environment"], **named["options"])
    session = partial(SpaceEnvironment, environment, observation, state)
    name = environment.name
    return create_app(session, action, observation, env_name=name, max_concurrent_envs=_SESSIONS, state_cls=state)


class SpaceEnvironment(Server[Any, Any, Any]):  # type: ignore[misc]
    """One session: episodes of one environment, one after the other.

    `state` is for the trainer: it holds the whole state, including what is hidden from the agent. An observation holds
    only what the agent sees.

    Args:
        environment: the rules, shared by all sessions.
        observation, state: pydantic models, as for `serve`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, environment: Environment[Any], observation: type, state: type) -> None:
        super().__init__()
        self._environment = environment
        self._observation = observation
        self._state = state
        self._world: State | None = None
        self._about: dict[str, Any] = {"episode_id": None, "step_count": 0}

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        injected_state: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> Any:
        """Begins an episode, or continues from a recorded state.

        Args:
            seed: of the task and all later random draws; a random one by default, reported in `state`.
            episode_id: reported in `state`.
            split: `"train"` (if left out) or `"held_out"`, with `index`.
            index: the index of the task in its split, from 0, instead of the task of `seed`.
            injected_state: an earlier `state` to continue from.
            **others: refused, so that no argument is ignored silently.

        Raises:
            ValueError: an argument is unknown or has an impossible value.
        """
        if others:
            raise ValueError(
                "reset takes seed, episode_id, split, index and injected_state, got "
                f"{', '.join(sorted(others))[:200]}; leave the others out."
            )
        begun = self._begun(seed, split, index) if injected_state is None else self._injected(injected_state)
        self._world, about = begun
        self._about = {"episode_id": episode_id or uuid.uuid4().hex, "step_count": 0, **about}
        return self._shown(self._world, None, {"instructions": self._environment.instructions})

    def step(self, action: Any, timeout_s: float | None = None, **others: Any) -> Any:
        if self._world is None:
            raise ValueError("reset must be called before the first step, got a step; call reset.")
        reward, played = 0.0, None
        if not self._is_over(self._world):
            transition = self._environment.step(self._world, action.action)
            self._world, reward, played = transition.state, transition.reward, transition.info.get("action")
            self._about["step_count"] += 1
        metrics = self._environment.metrics(self._world) if self._is_over(self._world) else {}
        return self._shown(self._world, reward, {"action": played, "metrics": metrics})

    def _is_over(self, world: State) -> bool:
        return world.status != "active" or self._about["step_count"] >= self._environment.max_turns

    @property
    def state(self) -> Any:
        """The complete state of the episode; `reset(injected_state=...)` continues from it."""
        world = "" if self._world is None else self._world.to_json()
        return self._state(**self._about, environment_state=world)

    def get_metadata(self) -> EnvironmentMetadata:
        environment = self._environment
        return EnvironmentMetadata(name=environment.name, description=environment.instructions, version=__version__)

    # Tasks: listed without their hidden parts

    def list_splits(self) -> list[dict[str, str]]:
        return [{"name": "train", "type": "train"}, {"name": "held_out", "type": "test"}]

    def num_tasks(self, split: str) -> int:
        task_seed(split, 0)  # type: ignore[arg-type]
        return SEEDS_PER_SPLIT

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"a task's index must be from 0 to {SEEDS_PER_SPLIT - 1}, got {index}; correct it.")
        return {"id": f"{split}-{index}", "split": split, "index": index, "seed": task_seed(split, index)}  # type: ignore[arg-type]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split, 0, MOST_LISTED)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        places = range(*slice(start, stop).indices(self.num_tasks(split)))
        return [self.get_task(split, index) for index in places[:MOST_LISTED]]

    # Episodes

    def _begun(self, seed: int | None, split: str | None, index: int | None) -> tuple[State, dict[str, Any]]:
        if index is None and split is not None:
            raise ValueError(f"split must come with index, got {split!r} without one; pass, for example, index=0.")
        if index is not None:
            split = split or "train"
            of_task = task_seed(split, index)  # type: ignore[arg-type]
            seed = of_task if seed is None else seed
        else:
            of_task = seed = secrets.randbelow(SEEDS_PER_SPLIT) if seed is None else seed
        world = self._environment.initial_state(self._environment.sample_task(of_task), seed)
        return world, {"seed": seed, "split": split, "index": index}

    def _injected(self, injected: Mapping[str, Any]) -> tuple[State, dict[str, Any]]:
        known = {name: injected.get(name) for name in ("seed", "split", "index")}
        try:
            world = self._environment.state_type.from_json(injected["environment_state"])
            shown = self._environment.observe(world)
            again = self._environment.state_type.from_json(world.to_json())
            whole = again == world and isinstance(shown, str) and isinstance(hash(world), int)
            steps = int(injected.get("step_count", 0))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"injected_state must be an earlier state, got {error!r}; pass all its fields.") from None
        if not whole or steps < 0:
            raise ValueError("injected_state must be an earlier state, got another value; pass all its fields.")
        return world, {"step_count": steps, **known}

    def _shown(self, world: State, reward: float | None, metadata: dict[str, Any]) -> Any:
        text = text_of(self._environment.observe(world))
        return self._observation(text=text, reward=reward, done=self._is_over(world), metadata=metadata)
