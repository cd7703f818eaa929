"""How a policy plays: its prompts and its sampling."""

from __future__ import annotations

from typing import Any

import pytest

from hf_credit import make
from hf_credit.playing import Prompts, Sampling
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.recipes import TaskArguments

OTHERS: dict[str, Any] = {"history": "current", "instructions": False, "max_turns": 3}


def test_what_is_left_out_is_neutral() -> None:
    Sampling().require_whole()
    Sampling(temperature=0.5, max_new_tokens=1).require_whole()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"temperature": 0}, "temperature must be above 0, got 0; raise it."),
        ({"top_p": 0.9}, "top_p must be 1.0 where values are exact, got 0.9; set it so."),
        ({"top_k": 1}, "top_k must be 0 where"),
        ({"min_p": 0.1}, "min_p must be 0.0 where"),
        ({"repetition_penalty": 1.1}, "repetition_penalty must be 1.0 where"),
    ],
)
def test_what_draws_from_another_distribution_is_refused_where_values_must_be_exact(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**changed).require_whole()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"history": "all"}, "history must be one of append, rendered, current, got 'all'"),
        ({"instructions": 1}, "instructions must be true or false, got 1"),
        ({"max_turns": 0}, "max_turns must be at least 1, got 0"),
        ({"max_turns": 2.5}, "max_turns must be a whole number, got 2.5"),
    ],
)
def test_every_way_to_name_prompts_refuses_what_does_not_exist_alike(changed: dict[str, Any], message: str) -> None:
    named: Any = {"task": "sudoku"}
    ways = {
        Prompts: {},
        TaskSpec: named,
        TaskArguments: named,
        EnvironmentInteraction: {"environment": make("sudoku")},
    }
    for way, needed in ways.items():
        with pytest.raises(ValueError, match=message):
            way(**needed, **changed)


def test_prompts_arrive_whole_from_a_recipe() -> None:
    played: Any = TaskArguments(task="sudoku", **OTHERS).spec().build()
    assert played.prompts == Prompts(**OTHERS)
    assert TaskSpec.of(played) == TaskSpec(**played.spec())
    assert {name: played.spec()[name] for name in OTHERS} == OTHERS
    assert EnvironmentInteraction(make("sudoku", size=4)).prompts == Prompts()
