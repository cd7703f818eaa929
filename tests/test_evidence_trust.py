"""The evidence of `evaluation/trust`: its script on a tiny puzzle, and its table against numbers worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from hf_credit import make, oracles
from hf_credit.environments.randomness import stream

FOLDER = "trust"


def test_a_start_is_made_diagnosed_and_trained_from(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    run = scripts["run"]
    tiny = {
        **run.EXPERIMENT,
        "start": {**run.EXPERIMENT["start"], "episodes": 16, "epochs": 1},
        "diagnosis": {"buckets": 4, "candidates": 2, "replays": 2},
        "held_out": 4,
        "tokens_per_blank": 1,
        "arms": {"continued": {"player": {"quality": 1.0, "episodes": 32}, "rollouts": 1}},
    }
    (tmp_path / "cells").mkdir()
    arms = (run.START, run.PREDICTED, run.CONTINUED_PREDICTED, "errs_10", run.CONTINUED)
    for arm in arms:
        run.run_cell(tiny, 6, arm, 0, tmp_path)
    cells = {arm: json.loads(run.cell_file(tmp_path, 6, arm, 0).read_text()) for arm in arms}
    assert list(cells["predicted"]["verdicts"]) == ["errs_02", "errs_10", "errs_30"]
    assert list(cells["continued_predicted"]["verdicts"]) == ["continued"]
    assert cells["errs_10"]["updates"] == cells["continued"]["updates"] == 8
    assert 0 <= cells["errs_10"]["success"] <= 1
    assert cells["continued"]["tokens_of_continuations"] > cells["continued"]["tokens"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells", "starts"]
    table = run.markdown({(6, arm): {0: cell} for arm, cell in cells.items()})
    assert "| 6 | 0.1 |" in table
    assert "| 6 | a player's |" in table


def test_an_erring_oracle_errs_at_its_rate_and_always_on_the_same_moves(scripts: dict[str, ModuleType]) -> None:
    environment, oracle = make("sudoku", size=4, blanks=8), oracles.make("sudoku_constraints")
    erring, other = (scripts["erring"].Erring(oracle, 0.2, seed) for seed in range(2))
    judged = []
    for seed in range(20):
        state, draws = environment.initial_state(environment.sample_task(seed), seed), stream(seed, "moves")
        while actions := environment.legal_actions(state):
            judged += [(state, action) for action in actions]
            state = environment.step(state, draws.choice(actions)).state
    wrong = [erring.score(*one) != oracle.score(*one) for one in judged]
    assert sum(wrong) / len(wrong) == pytest.approx(0.2, abs=4 * 0.4 / len(wrong) ** 0.5)
    assert wrong == [
        erring.score(state, f"so <action>{move}</action>") != oracle.score(state, move) for state, move in judged
    ]
    assert wrong != [other.score(*one) != oracle.score(*one) for one in judged]


def test_a_prediction_stands_beside_the_gain_over_the_outcome(scripts: dict[str, ModuleType]) -> None:
    run = scripts["run"]
    known = {name: {"mean": 0.1, "low": 0.05, "high": 0.2} for name in ("error", "own_error", "margin", "agreement")}
    cells = {
        (12, "predicted"): {0: {"verdicts": {"errs_02": {**known, "pays": True}}}},
        (12, "outcome"): {0: {"success": 0.1}, 1: {"success": 0.2}},
        (12, "errs_02"): {0: {"success": 0.3}, 1: {"success": 0.4}},
    }
    rows = [line for line in run.markdown(cells).splitlines() if line.startswith("| 12")]
    assert "| 12 | 0.02 | 0.10 [0.05, 0.20]" in rows[0]
    assert "| pay | 2 | +0.200 [+0.200, +0.200] |" in rows[0]
    assert "not run" in rows[1]


def test_every_training_has_a_file_of_its_own(scripts: dict[str, ModuleType]) -> None:
    run = scripts["run"]
    files = [run.cell_file(Path(), *cell) for phase in [*run.before(), run.trainings()] for cell in phase]
    assert len(set(files)) == len(files) == 6 + 2 * 5 * 6


def test_the_results_and_the_page_have_the_numbers_of_the_committed_cells(
    scripts: dict[str, ModuleType], root: Path
) -> None:
    run, finished = scripts["run"], scripts["finished_cells"]
    folder = root / "evaluation" / "trust"
    cells = finished.read([folder / "results" / "cells.json"], run.key)
    assert (folder / "results" / "results.md").read_text(encoding="utf-8") == run.markdown(cells)
    page = (folder / "README.md").read_text(encoding="utf-8")
    right, counted = 0, 0
    words = {True: "pays", False: "does not pay", None: "cannot be told"}
    for blanks in run.BLANKS:
        plain = [cells[blanks, run.OUTCOME][seed]["success"] for seed in run.SEEDS]
        outcome = f"{sum(plain) / len(plain):.3f}".lstrip("0")
        for arm in run.JUDGED:
            before = run.PREDICTED if arm in run.ERRORS else run.CONTINUED_PREDICTED
            said = cells[blanks, before][0]["verdicts"][arm]
            erring = f"an oracle that errs on {100 * run.ERRORS.get(arm, 0):.0f} %"
            judge = erring if arm in run.ERRORS else "a player's continuations"
            own = [cells[blanks, arm][seed]["success"] for seed in run.SEEDS]
            gain = run.paired_difference(own, plain)
            both = [f"{said[name]['mean']:.2f}".lstrip("0") for name in ("error", "own_error")]
            success = f"{sum(own) / len(own):.3f}".lstrip("0")
            ends = finished.interval(gain, signed=True).replace("+0.", "+.").replace("-0.", "-.")
            row = [f"{blanks}, {outcome}", judge, ", ".join(both), words[said["pays"]], success, ends]
            assert f"| {' | '.join(row)} |" in page
            if said["pays"] is not None and not gain.low <= 0 <= gain.high:
                counted += 1
                right += said["pays"] == (gain.mean > 0)
    assert (right, counted) == (7, 7)  # as the page says
