"""The evidence of `evaluation/`: each script on a tiny version, and the simulation against numbers worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from hf_credit.policies.micro import MicroConfig

FOLDER = "vpr"


def tiny(experiment: ModuleType, **changed: object) -> object:
    """Two seeds of a game that takes a second to train on, with one weak oracle."""
    game = experiment.Game(
        **{
            "name": "tic_tac_toe",
            "options": {"opponent": "random"},
            "policy": MicroConfig(hidden_size=16, layers=1, heads=2, episodes=24, epochs=8, batch_rows=8),
            "training": {
                "instances_per_update": 8,
                "per_device_train_batch_size": 8,
                "max_steps": 2,
                "learning_rate": 1e-3,
            },
            "columns": ("return_first", "return_second"),
            "simulations": (4,),
            **changed,
        }
    )
    return experiment.Experiment(games=(game,), seeds=(0, 1), held_out_episodes=16)


@pytest.fixture(scope="module")
def work(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of a tiny experiment, run to the end."""
    folder = tmp_path_factory.mktemp("work")
    scripts["run"].run(tiny(scripts["experiment"]), folder, workers=1)
    return folder


def test_every_arm_of_every_seed_is_trained_and_evaluated(scripts: dict[str, ModuleType], work: Path) -> None:
    cells = scripts["cells"].read_cells((work / "cells").glob("*.json"))
    found = {(cell["arm"], cell["seed"]) for cell in cells.cells}
    assert found == {(arm, seed) for arm in ("Base", "OR", "MC-PR", "VPR", "VPR-4") for seed in (0, 1)}
    for cell in cells.cells:
        assert {len(values) for values in cell["scores"].values()} == {16}
        if cell["arm"] == "Base":
            continue
        assert (cell["updates"], cell["episodes"]) == (2, 16)
        assert len(cell["curves"]["reward"]) == 2
        assert (cell["tokens"]["value_rollouts"] > 0) == (cell["arm"] == "MC-PR")


def test_all_arms_meet_the_same_held_out_tasks(scripts: dict[str, ModuleType], work: Path) -> None:
    cells = scripts["cells"].read_cells((work / "cells").glob("*.json"))
    first = {tuple(value is None for value in cell["scores"]["return_first"]) for cell in cells.cells}
    assert len(first) == 1  # whether the agent moves first is part of the task


def test_a_second_run_trains_only_what_is_missing(scripts: dict[str, ModuleType], work: Path) -> None:
    missing = work / "cells" / "tic_tac_toe-OR-1.json"
    before = {path: path.stat().st_mtime_ns for path in (work / "cells").iterdir()}
    old = json.loads(missing.read_text())
    missing.unlink()
    scripts["run"].run(tiny(scripts["experiment"]), work, workers=1)
    new = json.loads(missing.read_text())
    assert {**new, "cpu_seconds": None} == {**old, "cpu_seconds": None}  # and it comes out the same
    assert {path for path in before if path.stat().st_mtime_ns != before[path]} == {missing}


def test_a_cell_that_fails_is_named_and_stops_no_other(scripts: dict[str, ModuleType], work: Path) -> None:
    missing = work / "cells" / "tic_tac_toe-VPR-1.json"
    missing.unlink()
    with pytest.raises(RuntimeError, match="got failures in tic_tac_toe VPR-0 0, tic_tac_toe VPR-0 1;"):
        scripts["run"].run(tiny(scripts["experiment"], simulations=(0,)), work, workers=1)
    assert missing.is_file()


def test_cells_of_other_settings_are_not_mixed(scripts: dict[str, ModuleType], work: Path) -> None:
    other = tiny(scripts["experiment"], options={"opponent": "mixture"})
    with pytest.raises(ValueError, match=r"must have the same settings, got '.*settings.json' of others"):
        scripts["run"].run(other, work, workers=1)


def test_a_table_without_cells_says_what_to_run(
    scripts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        scripts["table"].main(["--results", str(tmp_path)])
    assert "run run.py first" in capsys.readouterr().err


def test_the_table_holds_every_comparison_and_its_correction(
    scripts: dict[str, ModuleType], work: Path, tmp_path: Path
) -> None:
    cells = scripts["cells"].read_cells((work / "cells").glob("*.json"))
    scripts["table"].write(tiny(scripts["experiment"]), cells, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert {(c["a"], c["b"]) for c in results["comparisons"]} == {("VPR", b) for b in ("Base", "OR", "MC-PR")}
    assert len(results["comparisons"]) == 6
    assert all(c["seeds_holm"] >= c["seeds_p"] and c["tasks_holm"] >= c["tasks_p"] for c in results["comparisons"])
    assert {(c["a"], c["b"]) for c in results["ablation"]} == {("VPR-4", "Base"), ("VPR-4", "VPR")}
    assert "MC-PR" in (tmp_path / "results.md").read_text()
    for name in ("learning_curves", "table1", "ablation"):
        assert (tmp_path / f"{name}.png").read_bytes()[1:4] == b"PNG"
    again = scripts["cells"].read_cells([tmp_path / "cells.json"])
    assert again == cells  # so that the table can be made anew from what is committed


def test_a_comparison_pairs_seeds_and_tasks(scripts: dict[str, ModuleType]) -> None:
    def cell(arm: str, seed: int, scores: list[float | None]) -> dict[str, object]:
        return {"game": "sudoku", "arm": arm, "seed": seed, "scores": {"success": scores}}

    cells = scripts["cells"].Cells(
        (
            cell("VPR", 0, [1, 1, None, 0]),
            cell("OR", 0, [0, 1, None, 0]),
            cell("VPR", 1, [1, 1, 1, None]),
            cell("OR", 1, [1, 0, 0, None]),
        )
    )
    found = scripts["table"].compare(cells, "sudoku", "success", "VPR", "OR", [0, 1])
    # Seed 0: 2/3 - 1/3; seed 1: 1 - 1/3. Tasks: three of six pairs differ, all in one direction.
    assert found.seeds.mean == pytest.approx(0.5)
    # Two seeds, 1/3 and 2/3: a standard error of 1/6, and t(0.975; 1) = 12.7062.
    assert (found.seeds.low, found.seeds.high) == pytest.approx((0.5 - 12.7062 / 6, 0.5 + 12.7062 / 6), rel=1e-4)
    assert found.tasks.mean == pytest.approx(0.5)
    assert found.seeds_p == 0.5  # 2 of the 4 sign patterns of two seeds are as far out
    assert found.tasks_p == 0.25  # the zeros have no sign: 2 of the 8 patterns of three
    assert (found.ahead, found.seeds.n, found.tasks.n) == (2, 2, 6)


def test_one_seed_is_refused(scripts: dict[str, ModuleType], work: Path, tmp_path: Path) -> None:
    cells = scripts["cells"].read_cells((work / "cells").glob("*-0.json"))
    with pytest.raises(ValueError, match=r"two seeds .* got \[0\]"):
        scripts["table"].write(tiny(scripts["experiment"]), cells, tmp_path)


def test_the_signal_of_vpr_grows_and_that_of_or_falls_with_the_horizon(scripts: dict[str, ModuleType]) -> None:
    closed_form = scripts["horizon"].closed_form
    # p = 1/2. H = 1: both 1 * 1/2 * 1/2. H = 3: 3 * 1/4 against 3 * 1/2 * 1/8.
    assert closed_form("VPR", 1, 0.5) == closed_form("OR", 1, 0.5) == 0.25
    assert closed_form("VPR", 3, 0.5) == 0.75
    assert closed_form("OR", 3, 0.5) == 0.1875
    # Eq. 9: their ratio is p^(1 - H), here 2^9.
    assert closed_form("VPR", 10, 0.5) / closed_form("OR", 10, 0.5) == 512


def test_the_noise_of_two_steps_worked_by_hand(scripts: dict[str, ModuleType]) -> None:
    # p = 1/2, H = 2; a step's score is +-1/2. VPR: each step is 1/2 or 0, half of the time: variance 2 * 1/16.
    assert scripts["horizon"].closed_form_noise("VPR", 2, 0.5) ** 2 == pytest.approx(1 / 8)
    # OR, b = 1/4: (1,1) gives 3/4 * 1, (0,0) gives -1/4 * -1, the others 0. Mean 1/4 (3/4 + 1/4) = 1/4,
    # second moment 1/4 (9/16 + 1/16) = 5/32.
    assert scripts["horizon"].closed_form("OR", 2, 0.5) == 0.25
    assert scripts["horizon"].closed_form_noise("OR", 2, 0.5) ** 2 == pytest.approx(5 / 32 - 1 / 16)


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_the_simulation_agrees_with_the_closed_forms(scripts: dict[str, ModuleType], horizon: int) -> None:
    module = scripts["horizon"]
    simulated = module.simulate(horizon, 0.7, batches=300, trajectories=64, seed=horizon)
    for method in ("VPR", "OR"):
        found, exact = simulated[method], module.closed_form(method, horizon, 0.7)
        assert abs(found["mean"] - exact) < 5 * found["error"]
        assert found["noise"] == pytest.approx(module.closed_form_noise(method, horizon, 0.7), rel=0.05)


def test_the_horizon_is_written_with_a_plot(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    scripts["horizon"].write(tmp_path, horizons=(1, 4), batches=20)
    rows = json.loads((tmp_path / "horizon.json").read_text())["rows"]
    assert [row["horizon"] for row in rows] == [1, 4]
    assert "| 4 |" in (tmp_path / "horizon.md").read_text()
    assert (tmp_path / "horizon.png").read_bytes()[1:4] == b"PNG"


def test_a_stronger_oracle_errs_less(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    scripts["oracle_error"].write(tmp_path, simulations=(1, 256), episodes=40)
    weak, strong = json.loads((tmp_path / "oracle_error.json").read_text())
    # One simulation accepts one move, drawn blindly.
    assert 0.3 < weak["wrong"] < 0.6
    assert strong["wrong"] < 0.15
    # A search hardly ever sees two moves as equally good, and an open board has many.
    assert weak["missed"] > strong["missed"] > 0.3
    assert "| 256 |" in (tmp_path / "oracle_error.md").read_text()
