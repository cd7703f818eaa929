"""The evidence of `evaluation/real`: its script on a tiny version, and its sums against numbers worked by hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from hf_credit.policies.micro import MicroConfig
from hf_credit.policies.scripted import player_of
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy

FOLDER = "real"


def test_a_start_is_warmed_up_and_a_cell_spends_its_budget_and_is_measured_on_held_out_tasks(
    scripts: dict[str, ModuleType], tmp_path: Path, micro_policy: Path
) -> None:
    run = scripts["run"]
    tiny = copy.deepcopy({**run.EXPERIMENT, "model": str(micro_policy)})
    training = {"instances_per_update": 4, "per_device_train_batch_size": 4}
    tiny["tasks"]["sudoku"] |= {"budget": 1, "held_out": 4, "accepted": (0, 1)}
    tiny["tasks"]["sudoku"]["training"] |= training
    tiny["tasks"]["sudoku"]["warm_up"] |= {"episodes": 4, "rows": 4, "every": 1, "updates": 1}
    tiny["looked_at"] = 2
    (tmp_path / "cells").mkdir()
    run.run_cell(tiny, "sudoku", run.START, 0, tmp_path)
    run.run_cell(tiny, "sudoku", "verifiable_process", 0, tmp_path)
    start, cell = (
        json.loads(run.cell_file(tmp_path, "sudoku", arm, 0).read_text()) for arm in (run.START, "verifiable_process")
    )
    assert [updates for updates, _ in start["warm_up"]] == [1]
    assert (cell["updates"], cell["scores"], cell["sampled_tokens"] > 1) == (1, 4, True)
    assert [tokens for tokens, _ in cell["curve"]] == [cell["sampled_tokens"]]
    assert cell["success"] in (0.0, 0.25, 0.5, 0.75, 1.0)


def test_an_agent_of_many_calls_is_warmed_up_and_begins_late_in_the_play_of_its_script(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    run = scripts["run"]
    interaction, train, _ = run.opened(run.EXPERIMENT["tasks"]["lookups"])
    player = player_of(interaction, 0.9, "lookups_player:Player")
    starts = [RolloutRequest(task=row, seed=place) for place, row in enumerate(train.select(range(4)))]
    config = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=4, epochs=1, batch_rows=4, learning_rate=1e-3)
    init_scripted_policy(interaction, player, starts, tmp_path / "model", config)
    interaction.close()
    tiny = copy.deepcopy({**run.EXPERIMENT, "model": str(tmp_path / "model"), "looked_at": 2})
    tiny["tasks"]["lookups"] |= {"budget": 1, "held_out": 4, "accepted": (0, 1)}
    tiny["tasks"]["lookups"]["warm_up"] |= {"episodes": 4, "rank": 0, "rows": 4, "every": 1, "updates": 1}
    (tmp_path / "cells").mkdir()
    run.run_cell(tiny, "lookups", run.START, 0, tmp_path)
    run.run_cell(tiny, "lookups", "grpo_from_walks", 0, tmp_path)
    cell = json.loads(run.cell_file(tmp_path, "lookups", "grpo_from_walks", 0).read_text())
    assert (cell["updates"], cell["sampled_tokens"] > 1) == (1, True)
    assert cell["success"] in (0.0, 0.25, 0.5, 0.75, 1.0)


def test_methods_are_compared_seed_by_seed(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    run, table = scripts["run"], scripts["table"]
    costs = dict.fromkeys(("updates", "sampled_tokens", "tokens", "scores", "seconds"), 1)
    cells: dict[Any, Any] = {(task, run.START): {0: {"warm_up": [[10, 0.25]], "success": 0.2}} for task in run.METHODS}
    for method, found in {"outcome_reward": [0.1, 0.2, 0.3], "verifiable_process": [0.2, 0.4, 0.6, 0.9]}.items():
        cells["sudoku", method] = {
            seed: {"success": value, "curve": [[5, value], [10, value]], **costs} for seed, value in enumerate(found)
        }
    # Three pairs, .1, .2 and .3 apart: 0.2 +- 4.303 * 0.1 / sqrt(3); two of eight sign patterns are as far out.
    row = "| sudoku | verifiable_process - outcome_reward | +0.200 [-0.048, +0.448] | 3 of 3 | 0.250 | undecided |"
    assert row in table.markdown(cells)
    table.draw(cells, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["learning.png", "learning_narrow.png"]


def test_the_longer_rungs_show_their_signal_and_the_pilot_of_their_rates(scripts: dict[str, ModuleType]) -> None:
    run, table = scripts["run"], scripts["table"]
    costs = dict.fromkeys(("updates", "sampled_tokens", "tokens", "scores", "seconds"), 1)
    outcome, verdicts, walks = run.METHODS["sudoku_12"]
    found = {outcome: [0.1, 0.1, 0.1], verdicts: [0.3, 0.4, 0.5], walks: [0.2, 0.2, 0.2]}
    cells: dict[Any, Any] = {
        ("sudoku_12", arm): {seed: {"success": value, **costs} for seed, value in enumerate(own)}
        for arm, own in found.items()
    }
    cells["sudoku_12", outcome][run.PILOT_SEED] = {
        "curve": [[1, 0.1], [2, 0.3], [3, 0.5], [4, 0.5], [5, 0.4], [6, 0.6]]
    }
    cost = {"mean": 900.4, "low": 300.0, "high": None}
    cells["sudoku_12", run.START] = {0: {"warm_up": [[40, 0.04]], "success": 0.1}}
    cells["sudoku_12", run.BEFOREHAND] = {0: {"signals": {"grpo": {"silent": 0.75, "equal": 0.5, "cost": cost}}}}
    written = table.markdown(cells)
    assert "| sudoku_12 | grpo | 75% | 50% | 900 [300, unbounded] |" in written
    assert f"| sudoku_12 | {outcome} | 0.20 | 0.50 |" in written
    # Three pairs of one sign have p = 2 / 8, and no claim of these rungs is corrected for another.
    assert f"| sudoku_12 | {walks} - {outcome} | +0.100 [+0.100, +0.100] | 3 of 3 | 0.250 |" in written
    assert f"| sudoku_12 | {verdicts} - {outcome} | +0.300 [+0.052, +0.548] | 3 of 3 | 0.250 |" in written


def test_turn_credit_is_tested_by_itself_and_a_task_without_a_start_has_no_row(scripts: dict[str, ModuleType]) -> None:
    run, table = scripts["run"], scripts["table"]
    costs = dict.fromkeys(("updates", "sampled_tokens", "tokens", "scores", "seconds"), 1)
    cells: dict[Any, Any] = {("sql_agent", run.START): {0: {"warm_up": [[16]], "success": 0.2}}}
    for method in run.METHODS["sql_agent"]:
        found = [0.1, 0.1, 0.1] if method == "grpo" else [0.2, 0.3, 0.4]
        cells["sql_agent", method] = {seed: {"success": value, **costs} for seed, value in enumerate(found)}
    written = table.markdown(cells)
    # Three pairs of one sign have p = 2 / 8; Holm doubles it for the two of the family.
    rows = [row.strip("| ").split(" | ") for row in written.splitlines() if " - grpo" in row]
    p = {row[1].removesuffix(" - grpo"): row[4] for row in rows}
    assert p == {"turn_credit": "0.250", "replay_loo": "0.500", "active_replay": "0.500"}
    assert "sudoku" not in written


def test_the_results_and_the_page_have_the_numbers_of_the_committed_cells(
    scripts: dict[str, ModuleType], root: Path
) -> None:
    run, table, finished = scripts["run"], scripts["table"], scripts["finished_cells"]
    folder = root / "evaluation" / "real"
    cells = finished.read([folder / "results" / "cells.json"], run.key)
    assert (folder / "results" / "results.md").read_text(encoding="utf-8") == table.markdown(cells)
    page = " ".join((folder / "README.md").read_text(encoding="utf-8").split())
    for task in table.tasks_of(cells):
        behind, *others = run.METHODS[task]
        for method in (behind, *others):
            seeds = table.seeds_of(cells, task, method, behind)
            if len(seeds) < 2:  # a single one has no interval
                continue
            own, plain = ([cells[task, one][seed]["success"] for seed in seeds] for one in (method, behind))
            found, ahead = table.mean_interval(own), table.paired_difference(own, plain)
            assert f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]" in page, method
            assert method == behind or f"{ahead.mean:+.2f} [{ahead.low:+.2f}, {ahead.high:+.2f}]" in page, method
    for found in (cells[task, run.BEFOREHAND][0] for task in table.tasks_of(cells) if (task, run.BEFOREHAND) in cells):
        for one in found["signals"].values():
            ends = (one["cost"][end] for end in ("mean", "low", "high"))
            mean, low, high = ("unbounded" if end is None else f"{end:,.0f}" for end in ends)
            assert f"{mean} [{low}, {high}]" in page
