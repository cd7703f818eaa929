"""The evidence of `evaluation/ladder`: its script on a tiny world, and its tables against numbers worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.policies.micro import MicroConfig

FOLDER = "ladder"


def cells_of(experiment: ModuleType, found: dict[tuple[str, str, str], list[list[float]]]) -> dict[Any, Any]:
    """Cells with the success of each seed at the four looks."""
    return {
        (world, rung, arm): {
            seed: {
                "world": world,
                "rung": rung,
                "arm": arm,
                "seed": seed,
                "looks": [{"tokens": 1, "success": one, "turns": 2.0} for one in looks],
                "updates": 3,
                "cpu_seconds": 4.0,
            }
            for seed, looks in enumerate(seeds)
        }
        for (world, rung, arm), seeds in found.items()
    }


def test_a_start_is_made_and_an_arm_trains_from_it_and_is_looked_at_four_times(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, world = scripts["run"], scripts["experiment"].WORLDS["sudoku"]
    rung = replace(world.rungs["4"], start=replace(world.rungs["4"].start, episodes=16, epochs=1), budget=100)
    tiny = {**run.EXPERIMENT, "worlds": {"sudoku": replace(world, rungs={"4": rung})}, "held_out": 4}
    (tmp_path / "cells").mkdir()
    for arm in (run.START, run.TAUGHT, "verdicts_first"):
        run.run_cell(tiny, "sudoku", "4", arm, 0, tmp_path)
    start, taught, cell = (
        json.loads(run.cell_file(tmp_path, "sudoku", "4", arm, 0).read_text())
        for arm in (run.START, run.TAUGHT, "verdicts_first")
    )
    assert start["decisions"] == taught["decisions"] == 4.0
    assert [look["tokens"] for look in cell["looks"]] == [cell["tokens"]] * 4
    assert (cell["updates"], cell["weights"]) == (8, [0.0])
    assert not run.learnable(tmp_path, "sudoku", "4")
    against, comparisons = run.disagreement(world, rung, tmp_path / "starts" / "sudoku-4-start-0", 8)
    assert against == 0 <= comparisons <= 4  # a success has no wrong digit
    assert sorted(path.name for path in (tmp_path / "starts").iterdir()) == ["sudoku-4-start-0"]
    # One that is kept is taken as it is, whatever the warm-up.
    monkeypatch.setattr(run, "KEPT", tmp_path / "starts")
    other = {**tiny, "worlds": {"sudoku": replace(world, rungs={"4": replace(rung, start=MicroConfig(episodes=8))})}}
    (tmp_path / "again" / "cells").mkdir(parents=True)
    run.run_cell(other, "sudoku", "4", run.START, 0, tmp_path / "again")
    again = json.loads(run.cell_file(tmp_path / "again", "sudoku", "4", run.START, 0).read_text())
    assert (again["success"], again["turns"]) == (start["success"], start["turns"])
    weights = [one / "starts" / "sudoku-4-start-0" / "model.safetensors" for one in (tmp_path, tmp_path / "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_new_checkout_goes_on_from_the_committed_cells_and_makes_only_the_starts_again(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, running, made = scripts["run"], scripts["running"], []

    def run_cell(experiment: Any, world: str, rung: str, arm: str, seed: int, work: Path) -> None:
        made.append((rung, arm, seed))
        found = {
            "success": again if arm == run.START else 0.9,
            "decisions": 4.0,
            "signals": {},
            "disagreement": [0, 1],
        }
        found |= {"looks": [{"tokens": 1, "success": 0.5, "turns": 2.0}] * 4, "updates": 3, "cpu_seconds": 4.0}
        cell = {"world": world, "rung": rung, "arm": arm, "seed": seed, **found}
        running.write_whole(run.cell_file(work, world, rung, arm, seed), cell)

    again, results = 0.3, tmp_path / "results"
    monkeypatch.setattr(run, "STAGES", [("sudoku", (rung,), ("outcome_reward",)) for rung in ("4", "6")])
    monkeypatch.setattr(run, "SEEDS", (0, 1))
    monkeypatch.setattr(run, "run_cell", run_cell)
    command = ["--results", str(results), "--workers", "1"]
    run.main([*command, "--work", str(tmp_path / "one"), "--seeds", "1"])
    of_rung = [(run.START, 0), (run.TAUGHT, 0), (run.BEFOREHAND, 0), ("outcome_reward", 0)]
    assert set(made) == {(rung, *one) for rung in ("4", "6") for one in of_rung}
    assert len(made) == 8
    committed = json.loads((results / "cells.json").read_text())
    made.clear()
    run.main([*command, "--work", str(tmp_path / "two"), "--stages", "1"])
    assert made == [("4", run.START, 0), ("4", "outcome_reward", 1)]
    assert [cell for cell in json.loads((results / "cells.json").read_text()) if cell["seed"] == 0] == committed
    again = 0.31
    for _ in range(2):  # the start that is there now is compared as well as the one that is made
        with pytest.raises(ValueError, match=r"must succeed as the committed one, got 0\.31 and 0\.3"):
            run.main([*command, "--work", str(tmp_path / "three")])
    monkeypatch.setattr(run, "EXPERIMENT", {**run.EXPERIMENT, "held_out": 1})
    with pytest.raises(ValueError, match="must have the same settings"):
        run.main([*command, "--work", str(tmp_path / "four")])


def test_a_claim_is_a_difference_a_slope_or_not_behind(scripts: dict[str, ModuleType]) -> None:
    experiment, table = scripts["experiment"], scripts["table"]
    cells = cells_of(
        experiment,
        {
            ("w", "few", "a"): [[0, 0.1, 0, 0.5], [0, 0.3, 0, 0.6]],
            ("w", "few", "b"): [[0, 0.2, 0, 0.4], [0, 0.2, 0, 0.4], [0, 0, 0, 1.0]],
            ("w", "many", "a"): [[0, 0, 0, 0.9], [0, 0, 0, 0.8]],
            ("w", "many", "b"): [[0, 0, 0, 0.2], [0, 0, 0, 0.1]],
        },
    )
    claim = experiment.Claim(world="w", says="", arms=("a", "b"), rungs=("few",))
    assert table.numbers(cells, claim) == pytest.approx([0.1, 0.2])
    assert table.numbers(cells, replace(claim, look=0.25, margin=0.05)) == pytest.approx([-0.1, 0.1])
    assert table.numbers(cells, replace(claim, rungs=("few", "many"))) == pytest.approx([0.6, 0.5])


def test_tokens_to_a_level_are_read_between_looks_and_end_with_the_budget(scripts: dict[str, ModuleType]) -> None:
    experiment, table = scripts["experiment"], scripts["table"]
    found = {("w", "r", "a"): [[0.15, 0.25, 0.1, 0.6]], ("w", "r", "b"): [[0.1, 0.1, 0.19, 0.19]]}
    cells = cells_of(experiment, found) | {("w", "r", "start"): {0: {"success": 0.1}}}
    # From .15 at 1/8 to .25 at 1/4: .2 is half of the way.
    assert table.spent(cells, "w", "r", "a") == {0: pytest.approx(0.1875)}
    assert table.spent(cells, "w", "r", "b") == {0: 1.0}
    claim = experiment.Claim(world="w", says="", arms=("a", "b"), rungs=("r",), look=0.0)
    assert table.numbers(cells, claim) == pytest.approx([0.8125])


def test_claims_of_a_world_are_corrected_together_and_those_that_are_not_run_count(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    experiment, table = scripts["experiment"], scripts["table"]
    seeds = [0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.2]
    cells = cells_of(
        experiment,
        {
            ("sudoku", "12", "verifiable_process"): [[0, 0, 0, 0.3 + one] for one in seeds],
            ("sudoku", "12", "verdicts_first"): [[0, 0, 0, 0.3 + one] for one in seeds],
            ("sudoku", "12", "outcome_reward"): [[0, 0, 0, 0.3] for _ in seeds],
        },
    )
    decided = table.decided(cells, "sudoku")
    rows = {row[0]: row for row in decided}
    # A deviation of .0320 over seeds: +- 2.262 .0320 / sqrt(10). All have one sign: p = 2 / 1024, times the claims.
    p = 2 / 1024 * len(decided)
    longest = rows["verdicts gain at the longest"]
    assert longest[4:] == ["10", "+0.146 [+0.123, +0.169]", "10 of 10", f"{p:.3f} supported"]
    # No difference, which is shown; what is tested has the margin.
    same = rows["verdicts first lose nothing: not behind by 0.05"]
    assert same[4:] == ["10", "+0.000 [+0.000, +0.000]", "0 of 10", f"{p:.3f} supported"]
    assert rows["starts of an oracle's play, ahead at the longest"][-1] == "not run"
    cells["sudoku", "12", "start"] = {0: {"decisions": 12.0, "success": 0.03, **dict.fromkeys(("world", "rung"), "")}}
    assert "| sudoku | 12 | verifiable_process | 10 | 0.000" in table.markdown(cells)
    table.draw(cells, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").is_file()


def test_the_results_and_the_readme_have_the_numbers_of_the_committed_cells(
    scripts: dict[str, ModuleType], root: Path
) -> None:
    run, table, finished = scripts["run"], scripts["table"], scripts["finished_cells"]
    results = root / "evaluation" / "ladder" / "results"
    cells = finished.read([results / "cells.json"], run.key)
    assert (results / "results.md").read_text(encoding="utf-8") == table.markdown(cells)
    outcome, *others = arms = ("outcome_reward", "starts_of_own", "starts_of_oracle", "verifiable_process")

    def percent(found: Any, sign: str = "") -> str:
        mean, low, high = (100 * value for value in (found.mean, found.low, found.high))
        return f"{mean:{sign}.0f} [{low:{sign}.0f}, {high:{sign}.0f}]"

    rows = [line.strip("| ").split(" | ") for line in (root / "README.md").read_text(encoding="utf-8").splitlines()]
    told = {row[0]: row[1:] for row in rows}
    for rung in ("4", "8", "12"):
        ends = {arm: table.successes(cells, "sudoku", rung, arm, table.FINAL) for arm in arms}
        assert all(list(own) == list(range(10)) for own in ends.values())
        ahead = [ends[others[-1]][seed] - own for seed, own in ends[outcome].items()]
        start = f"{100 * cells['sudoku', rung, table.START][0]['success']:.0f}"
        means = [percent(table.mean_interval([*ends[arm].values()])) for arm in arms]
        assert told[rung] == [start, *means, percent(table.mean_interval(ahead), "+")]


def test_predictions_follow_from_cost_and_disagreement_and_are_counted_where_decided(
    scripts: dict[str, ModuleType],
) -> None:
    experiment, table = scripts["experiment"], scripts["table"]

    def signal(cost: float | None) -> Any:
        return {"cost": {"mean": cost}}

    beforehand = {
        "signals": {
            "outcome_reward": signal(None),
            "verifiable_process": signal(500.0),
            "rloo": signal(None),
            "replay_loo": signal(9.0),
        },
        "disagreement": [2.0, 10.0],
    }
    assert table.predicted(beforehand) == {
        "verifiable_process": (True, False),
        "rloo": (False, False),
        "replay_loo": (True, True),
    }
    assert table.predicted({**beforehand, "disagreement": [0.9, 10.0]})["verifiable_process"] == (True, True)
    cells = cells_of(
        experiment,
        {
            ("minesweeper", "r", "verifiable_process"): [[0, 0.5, 0, 0.1], [0, 0.6, 0, 0.1], [0, 0.5, 0, 0.1]] * 2,
            ("minesweeper", "r", "outcome_reward"): [[0, 0.1, 0, 0.1], [0, 0.1, 0, 0.3], [0, 0.1, 0, 0.0]] * 2,
        },
    )
    cells["minesweeper", "r", "beforehand"] = {0: beforehand}
    rows = {row[2]: row[3:] for row in table.predictions(cells)}
    assert rows["verifiable_process"] == ["yes", "yes", "no", "undecided"]
    assert table.hits(table.predictions(cells)).startswith("1 of 1 decided predictions were right")


def test_every_arm_is_a_method_and_every_claim_is_about_cells_that_are_run(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    experiment, run = scripts["experiment"], scripts["run"]
    for arm in experiment.ARMS.values():
        methods.make(arm.method, **arm.options)
    run_cells = {cell[:3] for stage in run.stages() for cell in stage}
    claimed = {(one.world, rung, arm) for one in experiment.CLAIMS for rung in one.rungs for arm in one.arms}
    assert claimed <= run_cells
    assert len(run_cells) == sum(len(rungs) * len(arms) for _, rungs, arms in experiment.STAGES)
    scripts["running"].require_same_settings(run.settings(), tmp_path / "settings.json", "arms")
    scripts["running"].require_same_settings(run.settings(), tmp_path / "settings.json", "arms")
    files = [run.cell_file(Path(), *cell) for stage in run.stages() for cell in stage]
    assert len(set(files)) == len(files)


def test_the_tables_have_the_numbers_of_the_committed_cells(scripts: dict[str, ModuleType], root: Path) -> None:
    run, table, finished = scripts["run"], scripts["table"], scripts["finished_cells"]
    results = root / "evaluation" / "ladder" / "results"
    cells = finished.read([results / "cells.json"], run.key)
    assert (results / "results.md").read_text(encoding="utf-8") == table.markdown(cells)
    told = json.loads((results / "predictions.json").read_text(encoding="utf-8"))
    assert told == json.loads(json.dumps(table.all_predicted(cells)))


def test_the_pretrained_model_is_a_world_of_the_picture_without_pilots_rates_and_other_tasks(
    scripts: dict[str, ModuleType],
) -> None:
    table = scripts["table"]
    found = [
        ("sudoku_12", "outcome_from_walks@1e-05", 3, {"success": 0.25}),
        ("sudoku_12", "outcome_reward@3e-05", 100, {"success": 0.5}),
        ("sudoku_8", "beforehand", 0, {}),
        ("sql_agent", "grpo", 0, {"success": 0.5}),
    ]
    cells = table.of_pretrained({"task": t, "method": m, "seed": s, **rest} for t, m, s, rest in found)
    assert list(cells) == [(table.PRETRAINED, "12", "starts_of_oracle")]
    assert table.successes(cells, table.PRETRAINED, "12", "starts_of_oracle", 1.0) == {3: 0.25}
    assert cells[table.PRETRAINED, "12", "starts_of_oracle"][3]["decisions"] == 12.0
