"""The evidence of `evaluation/t3`: its scripts on a tiny version, and its sums against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hf_credit.evaluation.statistics import paired_difference
from hf_credit.policies.micro import MicroConfig

FOLDER = "t3"


@pytest.fixture(scope="module")
def cells(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """The start of a small game and every arm of one algorithm, one seed, two updates."""
    work = tmp_path_factory.mktemp("work")
    (work / "cells").mkdir()
    module, run = scripts["experiment"], scripts["run"]
    experiment = module.Experiment(
        training={**module.EXPERIMENT.training, "max_steps": 4, "steps_per_generation": 2},
        look_every=1,
        looks=8,
        episodes=12,
    )
    games, algorithms = dict(module.GAMES), dict(module.ALGORITHMS)
    small = MicroConfig(
        hidden_size=16, heads=2, episodes=160, epochs=4, batch_rows=8, learning_rate=1e-2, quality=0.85
    )
    name = module.GUESS_NUMBERS
    try:
        module.GAMES[name] = dataclasses.replace(games[name], policy=small, random=0.5)
        module.ALGORITHMS[module.GRPO] = {
            "group_size": 4,
            "instances_per_update": 2,
            "per_device_train_batch_size": 2,
        }
        run.run_cell(experiment, name, "", module.START, 0, work)
        for arm in module.ARMS:
            run.run_cell(experiment, name, module.GRPO, arm, 0, work)
        found = scripts["table"].read_cells((work / "cells").glob("*.json"))
    finally:
        module.GAMES.update(games)
        module.ALGORITHMS.update(algorithms)
    return {arm: own[0] for (_, _, arm), own in found.items()}


def test_every_arm_starts_alike_and_is_looked_at_before_every_update(cells: dict[Any, Any]) -> None:
    arms = [cell for arm, cell in cells.items() if arm != "start"]
    assert len(arms) == 6
    first = {json.dumps(cell["on_the_way"][0]) for cell in arms}
    assert len(first) == 1
    for cell in arms:
        assert [look["update"] for look in cell["on_the_way"]] == [0, 1]
        assert len(cell["curves"]["reward"]) == 2
        assert cell["curves"]["budget/completion_tokens"][-1] == cell["tokens"]


def test_only_arms_that_cut_cut_and_only_the_shorter_one_has_fewer_replies(cells: dict[Any, Any]) -> None:
    for arm in ("hard", "soft", "mask", "random"):
        assert max(cells[arm]["curves"]["cut/ratio"]) > 0
    for arm in ("vanilla", "shorter"):
        assert not cells[arm]["curves"]["cut/ratio"]
    assert max(cells["shorter"]["curves"]["turns/mean"]) <= 3


def test_success_never_falls_with_a_higher_limit_of_replies(cells: dict[Any, Any]) -> None:
    for cell in cells.values():
        assert cell["solved"] == sorted(cell["solved"])
        assert len(cell["solved"]) == 10
    players = cells["start"]["players"]
    assert players["oracle"][5] == 1.0  # of twelve numbers, six replies always suffice
    assert players["imitated"][5] < 1.0


def test_success_by_the_number_of_replies_worked_by_hand(scripts: dict[str, ModuleType]) -> None:
    played = [(1, 0.0), (2, 1.0), (3, 1.0), (3, 0.0)]
    assert scripts["run"]._by_replies(played, 4) == [0.0, 0.25, 0.5, 0.5]


def test_tokens_to_a_level_and_the_height_at_some_tokens_worked_by_hand(scripts: dict[str, ModuleType]) -> None:
    table = scripts["table"]
    points = [(0.0, 0.1), (100.0, 0.3), (300.0, 0.2), (400.0, 0.6)]
    assert table.tokens_to(0.2, points) == pytest.approx(50)
    assert table.tokens_to(0.4, points) == pytest.approx(350)
    assert table.tokens_to(0.1, points) == 0
    assert table.tokens_to(0.7, points) is None
    assert table.at_tokens(200, points) == pytest.approx(0.25)
    assert table.at_tokens(500, points) == 0.6


def test_a_curve_counts_the_tokens_before_each_look(scripts: dict[str, ModuleType]) -> None:
    game = next(iter(scripts["experiment"].GAMES.values()))
    looks = [{"update": 0, "solved": [0.1] * 10}, {"update": 2, "solved": [0.2] * 10}]
    cell = {
        "on_the_way": looks,
        "curves": {"budget/completion_tokens": [10.0, 30.0, 60.0]},
        "tokens": 60,
        "solved": [0.5] * 10,
    }
    assert scripts["table"].curve(game, cell) == [(0.0, 0.1), (30.0, 0.2), (60.0, 0.5)]


def test_verdicts_follow_the_rule_that_was_written_down(scripts: dict[str, ModuleType]) -> None:
    verdict = scripts["finished_cells"].verdict
    ahead = paired_difference([0.6, 0.61, 0.59], [0.5, 0.5, 0.5])
    behind = paired_difference([0.5, 0.5, 0.5], [0.6, 0.61, 0.59])
    equal = paired_difference([0.5, 0.51, 0.5], [0.5, 0.5, 0.5])
    assert (verdict(ahead, 0.01), verdict(behind, 0.01)) == ("supported", "refuted: behind")
    assert verdict(behind, 0.01, behind="the other is ahead") == "the other is ahead"
    assert (verdict(ahead, 0.2), verdict(equal, 0.5)) == ("undecided", "no difference")


def test_what_decides_comes_first_each_after_its_start_and_nothing_twice(scripts: dict[str, ModuleType]) -> None:
    experiment = scripts["experiment"]
    starts, deciding, other_starts, others = experiment.EXPERIMENT.stages()
    assert {cell[:2] for cell in deciding} == {experiment.DECIDING}
    assert [cell[3] for cell in deciding[:8]] == [0] * 4 + [1] * 4
    assert len({*deciding, *others}) == len(deciding) + len(others) == 2 * 3 * 6 * 10
    assert {(cell[0], cell[3]) for cell in deciding} <= {(cell[0], cell[3]) for cell in starts}
    assert {(cell[0], cell[3]) for cell in others} == {(cell[0], cell[3]) for cell in [*starts, *other_starts]}


def test_the_committed_tables_are_those_of_the_committed_cells(scripts: dict[str, ModuleType], root: Path) -> None:
    results = root / "evaluation" / "t3" / "results"
    cells = scripts["table"].read_cells([results / "cells.json"])
    assert scripts["table"].markdown(cells) == (results / "results.md").read_text(encoding="utf-8")
    assert json.loads((results / "cells.json").read_text(encoding="utf-8"))[0]["made_with"]


def test_what_happens_stays_within_the_bounds_of_the_theory(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    scripts["theory"].main(["--results", str(tmp_path), "--worlds", "10"])
    lines = (tmp_path / "theory.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| 0")]
    thresholds, leaving, entries = rows[:4], rows[4:5], rows[5:]
    assert [float(row[1]) for row in thresholds] == [20.94, 10.94, 5.94, 4.28]  # (log 4 + 2 / eta + 0.5) / 2
    assert all(0.2 < float(row[2]) <= float(row[3]) < 0.3 for row in thresholds)  # c_0 / m is 0.25
    assert leaving == [["0", "0.00"]]
    assert all(1 < int(row[1]) <= int(row[2]) for row in entries)
    assert len(entries) == 3
