"""Whole episodes and those without a role have the same worlds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_credit.collaborations.think_solve import ThinkSolve
from hf_credit.collectors import Removals
from hf_credit.collectors.removals import without
from hf_credit.rollouts import Engine, Generation, LocalContext


class Weather(ThinkSolve):
    """A team in a world: the seed is the weather."""

    def start(self, task: Any, seed: int) -> Any:
        return self.reseed(super().start(task, seed), seed)

    def reseed(self, state: Any, seed: int) -> Any:
        return replace(state, task=json.dumps({**state.row, "weather": seed}))


def test_an_episode_meets_the_world_that_its_comparison_meets_and_no_other(chat: Any) -> None:
    def says(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [Generation(ids=chat.tokenizer("2<|end|>")["input_ids"]) for _ in contexts]

    roles = ("planner", "checker", "solver")
    team = Weather(dict.fromkeys(roles, "."), lambda task, text: 1.0, dict.fromkeys(roles, "problem"))
    context = LocalContext(Engine(team, chat, says))
    collected = Removals(size=3).bind(team)([{"problem": "1+1", "seed": 7}], context)
    weather = {
        kind: [one.episode.final_state.row["weather"] for one in collected.of_kind(kind)]
        for kind in ("policy", without(["planner"]), without(["checker"]), without(["planner", "checker"]))
    }
    assert [*weather.values()] == [[7, 1, 2]] * 4
