"""An environment of Gymnasium that is seen, not read."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from hf_credit.content import Image
from hf_credit.environments import make


class Strip(gymnasium.Env):
    """A red cell on a strip of four; the last one wins."""

    metadata: ClassVar = {"render_modes": ["rgb_array", "human"], "render_fps": 4}
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(4)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.cell = max(self.cell + 2 * int(action) - 1, 0)
        return self.cell, float(self.cell == 3), self.cell == 3, False, {}

    def render(self) -> Any:
        seen = np.zeros((8, 32, 3), np.uint8)
        seen[:, 8 * self.cell : 8 * self.cell + 8, 0] = 255
        return seen


gymnasium.register("Strip-v0", entry_point=Strip)


def strip(**options: Any) -> Any:
    return make("gymnasium", **{"id": "Strip-v0", "actions": ["left", "right"], "turns": 5, **options})


def red_cell(image: Image) -> int:
    """The cell that is red, read from the pixels."""
    (cell,) = {x // 8 for x in range(32) if image.pil().getpixel((x, 0))[0]}
    return cell
