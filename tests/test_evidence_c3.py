"""The evidence of `evaluation/c3`: its scripts on a tiny version, and its sums against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType

import pytest

from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.policies.micro import MicroConfig

FOLDER = "c3"


@pytest.fixture(scope="module")
def tiny(scripts: dict[str, ModuleType]) -> object:
    """Two seeds of a relay of four numbers."""
    return scripts["experiment"].Experiment(
        size=4,
        policy=MicroConfig(hidden_size=16, layers=1, heads=2, episodes=24, epochs=4, batch_rows=8),
        training={
            "instances_per_update": 2,
            "per_device_train_batch_size": 2,
            "max_steps": 2,
            "learning_rate": 1e-3,
            "beta": 0.0,
        },
        looked_at=(0, 1),
        buckets=BucketPlan(buckets=6, candidates=3, replays=2, value_actions=2),
        attempts=10,
        floor=1e-2,
        seeds=(0, 1),
    )


@pytest.fixture(scope="module")
def work(scripts: dict[str, ModuleType], tiny: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of the tiny experiment, run to the end."""
    folder = tmp_path_factory.mktemp("work")
    scripts["run"].run(tiny, folder, workers=1)
    return folder


def test_every_arm_takes_the_same_number_of_scores(scripts: dict[str, ModuleType], work: Path) -> None:
    cells = scripts["table"].read_cells((work / "cells").glob("*.json"))
    assert scripts["table"].seeds_of(cells) == [0, 1]
    for arm in scripts["experiment"].METHODS:
        for seed in (0, 1):
            ledger = cells[arm][seed]["ledger"]
            assert ledger["scoring_events"] == 2 * 2 * 8
            assert ledger["decisions"]["actor"] == 32
            # Two or four plans an instance, or one for each whole episode.
            plans = {"C3": 2, "C3 with 4 plans": 4, "C3 without leave-one-out": 2}.get(arm, 8)
            assert ledger["decisions"]["reasoner"] == 4 * plans


def test_all_arms_of_a_seed_start_alike(scripts: dict[str, ModuleType], work: Path) -> None:
    cells = scripts["table"].read_cells((work / "cells").glob("*.json"))
    looks = {arm: cells[arm][0]["training_credit"] for arm in scripts["experiment"].METHODS}
    assert all([look["update"] for look in own] == [0, 1] for own in looks.values())
    # Without replay, leave-one-out over whole episodes is 8/7 of MAGRPO's credit: the same ranks.
    first, second = (looks[arm][0]["all"] for arm in ("MAGRPO", "C3 without replay"))
    assert first["fidelity"] == second["fidelity"]
    assert second["within_context_variance"] == pytest.approx(
        first["within_context_variance"] * (8 / 7) ** 2, rel=1e-3, abs=1e-5
    )


def test_a_second_run_trains_only_what_is_missing(scripts: dict[str, ModuleType], tiny: object, work: Path) -> None:
    missing = work / "cells" / "c3-1.json"
    before = {path: path.stat().st_mtime_ns for path in (work / "cells").iterdir()}
    old = json.loads(missing.read_text())
    missing.unlink()
    scripts["run"].run(tiny, work, workers=1)
    new = json.loads(missing.read_text())
    assert {**new, "cpu_seconds": None} == {**old, "cpu_seconds": None}  # and it comes out the same
    assert {path for path in before if path.stat().st_mtime_ns != before[path]} == {missing}


def test_cells_of_other_settings_are_not_mixed(scripts: dict[str, ModuleType], tiny: object, work: Path) -> None:
    with pytest.raises(ValueError, match=r"must have the same settings, got '.*settings.json' of others"):
        scripts["run"].run(dataclasses.replace(tiny, attempts=3), work, workers=1)  # type: ignore[type-var]


def test_the_tables_and_plots_are_written(scripts: dict[str, ModuleType], work: Path, tmp_path: Path) -> None:
    table = scripts["table"]
    table.write(table.read_cells((work / "cells").glob("*.json")), tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    # Six others on two scores, five on two speeds.
    assert len(results["comparisons"]) == 6 * 2 + 5 * 2
    assert all(c["adjusted"] >= c["p"] for c in results["comparisons"])
    assert all(c["p"] >= 0.5 for c in results["comparisons"])  # two seeds have four sign patterns
    text = (tmp_path / "results.md").read_text()
    for heading in ("## Scores", "## Ledger", "## C3 against the others", "## Diagnostics of the trained policies"):
        assert heading in text
    for plot in ("learning", "training_credit", "diagnostics"):
        assert (tmp_path / f"{plot}.png").stat().st_size > 10_000
    again = tmp_path / "again"
    table.write(table.read_cells([tmp_path / "cells.json"]), again)
    assert (again / "results.md").read_text() == text


def test_one_seed_is_refused(scripts: dict[str, ModuleType], work: Path, tmp_path: Path) -> None:
    cells = scripts["table"].read_cells((work / "cells").glob("*-0.json"))
    with pytest.raises(ValueError, match=r"needs two seeds of which every arm is finished, got \[0\]"):
        scripts["table"].write(cells, tmp_path)


def test_the_mean_of_a_curve_is_its_area_over_its_length(scripts: dict[str, ModuleType]) -> None:
    cell = {"curves": {"reward": [0.0, 1.0, 1.0], "budget/tokens": [10, 20, 40]}}
    # A triangle of 10 wide and a block of 20 wide; cut at 30, a block of 10.
    assert scripts["table"].curve_mean(cell, "budget/tokens", 40) == pytest.approx((5 + 20) / 30)
    assert scripts["table"].curve_mean(cell, "budget/tokens", 30) == pytest.approx((5 + 10) / 20)


@pytest.mark.parametrize("domain", ["math", "code"])
def test_the_accounting_of_the_real_pipelines_holds(
    scripts: dict[str, ModuleType], root: Path, tmp_path: Path, domain: str
) -> None:
    data = root.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("needs the benchmark rows in ../shared/data, which are not here")
    (pipeline,) = [one for one in scripts["pipelines"].PIPELINES if one.domain == domain]
    found = scripts["pipelines"].run(pipeline, data, tmp_path, updates=1, instances=2, tokens=4)
    assert found["scores_expected"] == found["scores_in_ledger"] == found["scorer_calls"] == 16
    assert found["decisions"] == {"reasoner": 4, "actor": 16}
    assert found["scorer_calls_in_evaluation"] == 2
    assert (found["errors"], found["reference_score"]) == (0, 1)
    scripts["pipelines"].write([found], tmp_path / "results")
    assert str(data) not in (tmp_path / "results" / "pipelines.md").read_text()
