"""Gymnasium environments with actions as text, and observations as text and images."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_credit.content import Content, content_of, joined
from hf_credit.environments.actions import plain_action, tag
from hf_credit.environments.replayed import ReplayedEnvironment, ReplayedState
from hf_credit.optional_packages import needed
from hf_credit.registry import find

_MARKED = re.compile(r"\x1b\[[0-9;]*m([^\x1b]*)\x1b\[0m")  # coloured text in a terminal


class GymnasiumEnvironment(ReplayedEnvironment):
    """A Gymnasium environment with text actions, and observations of text, images or both.

    Its random numbers come from the seed of the episode. A new seed replaces `np_random`, so that replays see other
    futures, as in a slippery FrozenLake. An episode ends when Gymnasium returns `terminated` or `truncated`.
    `success` is `info["is_success"]` if present, else whether the sum of rewards is positive.

    Args:
        id: the environment's id for `gymnasium.make`.
        options: further arguments of `gymnasium.make`. With `render_mode="rgb_array"`, an observation has the image
            of `render()`, after the text if there is any.
        actions: the names of the actions of a `Discrete` space, in its order; by default its numbers. In a `Text`
            space any text is an action, and `actions` are examples.
        show: renders an observation as text, `show(env, observation) -> str`, with the unwrapped environment; or its
            `"module:name"`, which is imported and must be code that you trust. By default the observation of a `Text`
            space, and for other spaces the result of `render()`: an image, or text of the mode `ansi`, with brackets
            around colours.
        instructions: the rules, shown once; by default the names of the actions.
        turns: the most actions of an episode; by default the environment's own `max_episode_steps`.
        self_contained: whether an observation contains everything relevant.
        sessions: the most live environments at once.

    Raises:
        ValueError: an argument does not fit the environment, or the extra `gymnasium` is not installed.
    """

    name = "gymnasium"
    instructions = ""
    max_turns = 0  # set by the constructor
    task_columns = ()

    def __init__(
        self,
        id: str,
        options: Mapping[str, Any] | None = None,
        actions: Sequence[str] | None = None,
        show: Callable[[Any, Any], Content] | str | None = None,
        instructions: str | None = None,
        turns: int | None = None,
        self_contained: bool = False,
        sessions: int = 64,
    ) -> None:
        super().__init__(sessions, turns)
        self.id, self.options, self.show = id, dict(options or {}), show
        self.self_contained = self_contained  # type: ignore[misc]
        self._show = find("renderer", {}, show) if isinstance(show, str) else show
        self._mode: dict[str, str] = {}
        world = self._made()
        spaces, space = _gymnasium().spaces, world.action_space
        limit = world.spec.max_episode_steps if turns is None and world.spec else turns
        modes = world.metadata.get("render_modes") or ()
        world.close()
        self._text = self._show is not None or isinstance(world.observation_space, spaces.Text)
        mode = self.options.get("render_mode", "ansi")
        if not self._text:
            if mode not in {"ansi", "rgb_array"}.intersection(modes):
                raise ValueError(
                    f"an environment must have Text observations, the render mode ansi or a renderer, got {id!r} "
                    "without; pass show, or rgb_array as render_mode in options."
                )
            self._mode = {"render_mode": mode}
        self.open_actions = isinstance(space, spaces.Text)  # type: ignore[misc]
        if not isinstance(space, spaces.Text | spaces.Discrete):
            raise ValueError(
                f"actions must be of a Discrete or a Text space, got {space} of {id!r}; wrap the environment."
            )
        count = int(getattr(space, "n", 0))
        self._first = int(getattr(space, "start", 0))
        self.actions = tuple(map(str, range(count)) if actions is None else actions)
        if not self.actions or (count and len(set(map(plain_action, self.actions))) != count):
            raise ValueError(
                f"each of the {count or 'open'} actions of {id!r} must have its own name, got "
                f"{list(self.actions)}; pass actions, or examples if actions are open."
            )
        if limit is None:
            raise ValueError(f"an episode of {id!r} must have an end, got no max_episode_steps; pass turns.")
        self.max_turns = int(limit)
        named = f"{', such as' if self.open_actions else ':'} {', '.join(map(tag, self.actions))}"
        self.instructions = f"End your reply with an action{named}" if instructions is None else instructions

    def sample_task(self, seed: int) -> dict[str, Any]:
        return {}

    def open_world(self) -> GymnasiumWorld:
        numbers = {plain_action(name): self._first + place for place, name in enumerate(self.actions)}
        return GymnasiumWorld(self._made(), None if self.open_actions else numbers, self._show, self._text)

    def examples(self, state: ReplayedState) -> Sequence[str]:
        return self.actions if self.open_actions else tuple(map(plain_action, self.actions))

    def read_action(self, reply: str) -> str:
        read = super().read_action(reply)
        return read if self.open_actions else plain_action(read)

    def understands(self, state: ReplayedState, action: str) -> bool:
        return self.open_actions or action in self.examples(state)

    def _made(self) -> Any:
        try:
            return _gymnasium().make(self.id, **{**self._mode, **self.options})
        except _gymnasium().error.Error as error:
            raise ValueError(
                f"id must be registered in Gymnasium, got {self.id!r} ({error}); correct or register it."
            ) from error


@dataclass(eq=False)
class GymnasiumWorld:
    """One live Gymnasium environment."""

    env: Any
    numbers: Mapping[str, int] | None  # the number of each action name; `None` if any text is an action
    show: Callable[[Any, Any], Content] | None  # renders an observation as text
    text: bool  # whether there is another text than the result of `render`

    def reset(self, task: Mapping[str, Any], seed: int) -> Content:
        observation, _ = self.env.reset(seed=seed)
        return self._shown(observation)

    def step(self, action: str) -> tuple[Content, float, bool, Mapping[str, Any]]:
        taken = action if self.numbers is None else self.numbers[action]
        observation, reward, terminated, truncated, info = self.env.step(taken)
        facts = {"success": bool(info["is_success"])} if "is_success" in info else {}
        return self._shown(observation), float(reward), bool(terminated or truncated), facts

    def reseed(self, seed: int) -> None:
        self.env.unwrapped.np_random, _ = _gymnasium().utils.seeding.np_random(seed)

    def close(self) -> None:
        self.env.close()

    def _shown(self, observation: Any) -> Content:
        shown: list[Any] = []
        if self.text:
            shown.append(str(observation) if self.show is None else self.show(self.env.unwrapped, observation))
        if self.env.render_mode == "rgb_array":
            shown.append(needed("images need", "PIL.Image", "vision").fromarray(self.env.render()))
        elif not self.text:
            shown.append(_MARKED.sub(r"[\1]", self.env.render()).strip("\n"))
        return shown[0] if len(shown) == 1 else joined(map(content_of, shown))


def _gymnasium() -> Any:
    return needed("Gymnasium's environments need", "gymnasium", "gymnasium")
