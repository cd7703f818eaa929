"""The evidence of `evaluation/ccpo`: its scripts on a tiny version, and its sums against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest

from hf_credit.collaborations.exact_coalitions import CoalitionValues
from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.hinted_relay import hinted_relay, hinted_relay_pairs, hinted_relay_task
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import Chat

FOLDER = "ccpo"


def sequence_values(team: Any, chat: Chat, model: Any, state: Any, **limits: Any) -> CoalitionValues:
    """The value of every coalition of a thinker and a solver, 0 without the solver."""
    solver, thinker = frozenset({"solver"}), frozenset({"thinker"})
    rest = {solver | thinker: state, solver: team.without(state, "thinker")}
    values = {part: exact_values(team, chat, model, [start], **limits)[0].value for part, start in rest.items()}
    return CoalitionValues(roles=tuple(team.roles), values={frozenset(): 0.0, thinker: 0.0, **values})


@pytest.fixture(scope="module")
def cells(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Start and three arms of a small relay, start and two of a small vote, one seed each, two updates."""
    work = tmp_path_factory.mktemp("work")
    (work / "cells").mkdir()
    module, run = scripts["experiment"], scripts["run"]
    experiment = module.Experiment(
        policy=MicroConfig(hidden_size=16, layers=1, heads=2, episodes=24, epochs=4, batch_rows=8),
        training={**module.EXPERIMENT.training, "instances_per_update": 2, "per_device_train_batch_size": 2},
        group_size=2,
        looked_at=(0,),
        floor=1e-2,
    )
    small = {"relay": ("relay", {"size": 3}, 4), "vote": ("vote", {"size": 4, "ties": "expected"}, 2)}
    teams = dict(module.TEAMS)
    try:
        for name, (_, options, size) in small.items():
            arms = {
                **teams[name].arms,
                module.SHARED: {"reward": "shared", "group_size": size},
                "C3": {"method": "replay_loo", "options": {"budget": 4, "alternatives": [2, 2]}},
                module.ONE_AGENT: {"alone": "first", "method": "grpo", "options": {"group_size": 6}},
            }
            module.TEAMS[name] = dataclasses.replace(teams[name], options=options, arms=arms, updates=2)
        wanted = [("relay", arm) for arm in (module.BASE, module.SHARED, module.CCPO, "C3")]
        wanted += [("vote", arm) for arm in (module.BASE, module.CCPO, "one agent, untrained", module.ONE_AGENT)]
        for team, arm in wanted:
            run.run_cell(experiment, team, arm, 0, work)
        found = scripts["table"].read_cells((work / "cells").glob("*.json"))
    finally:
        module.TEAMS.update(teams)
    return {"work": work, **{key: own[0] for key, own in found.items()}}


def test_all_arms_of_the_relay_take_the_same_scores_and_start_alike(cells: dict[Any, Any]) -> None:
    # Two updates of two task rows: four whole episodes, or two and the solver alone in two, or two messages, each
    # with two answers.
    start = cells["relay", "start"]["exact"]
    for name in ("shared", "CCPO", "C3"):
        arm = cells["relay", name]
        assert arm["ledger"]["scoring_events"] == 16
        (look,) = arm["on_the_way"]
        assert look["train"]["value"] == pytest.approx(start["train"]["value"], abs=1e-5)
        assert set(look["fidelity"]) <= {"thinker", "solver"}


def test_one_agent_generates_what_the_team_does_and_is_measured_by_its_vote_too(cells: dict[Any, Any]) -> None:
    before, after = (cells["vote", arm]["exact"] for arm in ("one agent, untrained", "one agent, GRPO"))
    # Two updates of two task rows: two episodes of three who reply, or six replies of one.
    tokens = {arm: cells["vote", arm]["ledger"]["prompt_tokens"] for arm in ("CCPO", "one agent, GRPO")}
    assert tokens["CCPO"] == tokens["one agent, GRPO"]
    (look,) = cells["vote", "one agent, GRPO"]["on_the_way"]
    assert look["train"] == before["train"]
    for exact in (before, after):
        assert 0 <= exact["train"]["one_reply"] <= exact["train"]["any_reply"] <= 1


def test_three_samples_of_one_agent_worked_by_hand(scripts: dict[str, ModuleType], cells: dict[Any, Any]) -> None:
    from hf_credit.collaborations import make

    # Right with 1/2, else "0" or nothing, 1/4 each, three times, ties shared out. Sets with two or three right: 1/2.
    # One right (1/8 for each of three): beside two different others (1/2), among which nothing abstains, a tie of
    # two, worth 1/2; beside two "0" (1/4) 0; beside nothing twice (1/4) 1. So 3/8 (1/4 + 1/4) = 3/16 more.
    vote = make("sum_vote", size=4)
    agent = scripts["run"].one_agent(vote, "first")
    said = {"1": 0.5, "0": 0.25, "": 0.25}
    found = scripts["run"].sampled(said, {"1": 1.0, "0": 0.0, "": 0.0}, vote.roles, "expected")
    assert found == pytest.approx({"value": 0.6875, "one_reply": 0.5, "any_reply": 0.875})
    team, alone = vote.start({"problem": "0 and 1", "answer": "1"}, 0), agent.start({"problem": "0 and 1"}, 0)
    assert agent.pending(alone)[0].messages == vote.pending(team)[0].messages


def test_new_arms_may_join_finished_ones_and_nothing_else_may_change(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    require = scripts["running"].require_same_settings
    held = {"floor": 0.1, "teams": {"relay": {"updates": 60, "arms": {"shared": {"reward": "shared"}}}}}
    file = tmp_path / "settings.json"
    require(held, file, arms="arms")
    more = {"floor": 0.1, "teams": {"relay": {"updates": 60, "arms": {**held["teams"]["relay"]["arms"], "C3": {}}}}}
    require(more, file, arms="arms")
    assert json.loads(file.read_text()) == more
    for other in (
        held,  # an arm that has cells is gone
        {**more, "floor": 0.2},
        {**more, "teams": {"relay": {"updates": 60, "arms": {"shared": {"reward": "bonus"}, "C3": {}}}}},
        {**more, "teams": {"relay": {"updates": 50, "arms": more["teams"]["relay"]["arms"]}}},
        {**more, "new": 1},
    ):
        with pytest.raises(ValueError, match="must have the same settings"):
            require(other, file, arms="arms")


def test_the_value_of_the_start_is_that_of_the_library(cells: dict[Any, Any]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = cells["work"] / "starts" / "hinted_relay-0"
    model, chat = AutoModelForCausalLM.from_pretrained(folder), Chat(AutoTokenizer.from_pretrained(folder))
    team = hinted_relay(3)
    found = [
        sequence_values(team, chat, model, team.start(hinted_relay_task(*pair), 0), max_new_tokens=2, floor=1e-2)
        for pair in hinted_relay_pairs("train", 3)
    ]
    told = cells["relay", "start"]["exact"]["train"]
    assert told["value"] == pytest.approx(fmean(one.value for one in found), abs=1e-5)
    assert told["contribution"] == pytest.approx(fmean(one.contribution("thinker") for one in found), abs=1e-5)


def test_the_votes_of_all_three_are_compared_with_the_truth(cells: dict[Any, Any]) -> None:
    (look,) = cells["vote", "CCPO"]["on_the_way"]
    assert set(look["fidelity"]) <= {"first", "second", "third"}
    for split in ("train", "held_out"):
        assert 0 <= cells["vote", "start"]["exact"][split]["value"] <= 1


def test_information_in_bits_worked_by_hand(scripts: dict[str, ModuleType]) -> None:
    information = scripts["run"]._information
    assert information([("1", {"1": 1.0}), ("2", {"2": 1.0})]) == pytest.approx(1.0)
    assert information([("1", {"0": 1.0}), ("2", {"0": 1.0})]) == pytest.approx(0.0)
    # Right half of the time, else "0": H(M) = 1.5 bits, of which H(M | S) = 1 tells nothing.
    assert information([("1", {"1": 0.5, "0": 0.5}), ("2", {"2": 0.5, "0": 0.5})]) == pytest.approx(0.5)


def test_the_area_under_a_curve_is_its_mean_over_updates(scripts: dict[str, ModuleType]) -> None:
    looks = [{"update": 0, "train": {"value": 0.0}}, {"update": 1, "train": {"value": 1.0}}]
    cell = {"on_the_way": looks, "exact": {"train": {"value": 1.0}}, "reward": [0.0] * 4}
    assert scripts["table"]._area(cell) == pytest.approx((0.5 + 3) / 4)


def test_every_interval_that_the_readme_quotes_is_in_the_tables(root: Path) -> None:
    """A difference may be quoted the other way round."""

    def intervals(name: str) -> set[tuple[float, ...]]:
        number = r"([+-]?\d\.\d+)"
        text = (root / "evaluation" / "ccpo" / name).read_text(encoding="utf-8")
        return {tuple(map(float, found)) for found in re.findall(rf"{number} \[{number}, {number}\]", text)}

    tables = intervals("results/results.md")
    quoted = intervals("README.md")
    assert {one for one in quoted if one not in tables and (-one[0], -one[2], -one[1]) not in tables} == set()
    assert {(0.119, 0.049, 0.189), (0.017, 0.01, 0.025)} <= quoted


def test_the_committed_tables_are_those_of_the_committed_cells(scripts: dict[str, ModuleType], root: Path) -> None:
    results = root / "evaluation" / "ccpo" / "results"
    cells = scripts["table"].read_cells([results / "cells.json"])
    assert scripts["table"].markdown(cells) == (results / "results.md").read_text(encoding="utf-8")
    assert json.loads((results / "cells.json").read_text(encoding="utf-8"))[0]["made_with"]
