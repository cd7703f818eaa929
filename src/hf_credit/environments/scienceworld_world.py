"""ScienceWorld: text worlds in which an agent answers questions by experiments."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from hf_credit.environments.actions import plain_action, tag
from hf_credit.environments.randomness import stream
from hf_credit.environments.replayed import ReplayedEnvironment
from hf_credit.environments.tasks import SEEDS_PER_SPLIT
from hf_credit.optional_packages import needed

_UNKNOWN = "No known action matches that input."


class ScienceWorld(ReplayedEnvironment):
    """One task of ScienceWorld in its variations: training seeds draw training variations, held-out seeds test ones.

    Outcome: ScienceWorld's score, as a share of 100; a fatal mistake makes it -1. Each live world is a Java process
    without snapshots: a state without a live world is restored by playing its actions again.

    Args:
        task: the task's name, such as `"find-living-thing"`.
        simplifications: names of ScienceWorld's simplifications, separated by commas; `"easy"` for all.
        turns: the most actions of an episode.
        sessions: the most live simulators, about 200 MB each.

    Raises:
        ValueError: the task is unknown, or the extra `scienceworld` or Java is missing.
    """

    name = "scienceworld"
    acts = False
    task_columns = ("variation",)
    instructions = (
        "You do experiments in a house. End your reply with one action, such as "
        f"{tag('look around')}, {tag('go to kitchen')}, {tag('pick up thermometer')} or {tag('focus on dove')}"
    )

    def __init__(
        self, task: str = "find-living-thing", simplifications: str = "easy", turns: int = 100, sessions: int = 4
    ) -> None:
        super().__init__(sessions, turns)
        self.task, self.simplifications = task, simplifications
        first = self._live.any(self.open_world)
        with self._live.held(first) as world:
            self._variations = world.variations()
        self._live.give(first, None)

    def sample_task(self, seed: int) -> dict[str, Any]:
        variations = self._variations[seed >= SEEDS_PER_SPLIT]
        return {"variation": stream(seed, self.name, "task").choice(variations)}

    def open_world(self) -> ScienceWorldHouse:
        return ScienceWorldHouse(self.task, self.simplifications)

    def read_action(self, reply: str) -> str:
        return plain_action(super().read_action(reply))


class ScienceWorldHouse:
    """One live simulator; arguments as in `ScienceWorld`."""

    def __init__(self, task: str, simplifications: str) -> None:
        scienceworld = needed("ScienceWorld needs", "scienceworld", "scienceworld")
        if shutil.which("java") is None:
            raise ValueError(
                "ScienceWorld needs Java, got no program java; install a Java runtime of version 8 or later."
            )
        self.task = task
        self.simplifications = simplifications
        self.house = scienceworld.ScienceWorldEnv(envStepLimit=10**9)
        self.score = 0.0
        if task not in self.house.task_names and task not in self.house.tasks:
            known = ", ".join(self.house.task_names)
            self.close()
            raise ValueError(f"task must be one of {known}, got {task!r}; pick one.")

    def variations(self) -> tuple[list[int], list[int]]:
        """The numbers of the training variations and of the test variations."""
        self.house.load(self.task, 0, self.simplifications)
        return self.house.get_variations_train(), self.house.get_variations_test()

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        self.house.load(self.task, int(task["variation"]), self.simplifications)
        self.house.server.reset()
        shown = self._seen("look around")[0]
        self.score = 0.0  # what the look earned belongs to the first step, so that all rewards sum to the score
        return f"{self.house.get_task_description()}\n\n{shown}"

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        before = self.score
        observation, over = self._seen(action)
        facts = {"refused": observation == _UNKNOWN, "success": self.score >= 1}
        return observation, self.score - before, over or self.score < 0, facts

    def legal_actions(self) -> list[str]:
        return sorted(set(map(plain_action, self.house.get_valid_action_object_combinations())))

    def close(self) -> None:
        self.house.close()
        kept = getattr(self.house, "_obj_tree_tempdir", None)  # a folder that `close` leaves to the garbage collector
        if kept is not None:
            kept.cleanup()

    def _seen(self, action: str) -> tuple[str, bool]:
        # `ScienceWorldEnv.step` also lists all valid actions, which makes it many times slower.
        observation = str(self.house.server.step(action))
        self.score = round(float(self.house.server.getScore()), 6)
        return observation, bool(self.house.server.getCompleted())
