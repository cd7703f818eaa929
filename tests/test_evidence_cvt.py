"""The evidence of `evaluation/cvt`: its scripts on a tiny version, and its sums against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hf_credit.policies.micro import MicroConfig

FOLDER = "cvt"


@pytest.fixture(scope="module")
def cells(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The start, the check alone and CVT-RL, one seed, until 1,500 tokens."""
    work = tmp_path_factory.mktemp("work")
    (work / "cells").mkdir()
    module = scripts["experiment"]
    experiment = module.Experiment(
        policy=MicroConfig(hidden_size=16, layers=1, heads=2, quality=0.5, episodes=24, epochs=4, batch_rows=8),
        training={**module.EXPERIMENT.training, "instances_per_update": 2, "per_device_train_batch_size": 2},
        tokens=1500,
        held_out=8,
    )
    for arm in (module.BASE, next(iter(module.ARMS)), module.CVT):
        scripts["run"].run_cell(experiment, arm, 0, work)
    found = scripts["table"].read_cells((work / "cells").glob("*.json"))
    return {arm: own[0] for arm, own in found.items()}


def test_every_arm_ends_with_the_update_in_which_its_tokens_are_spent(cells: dict[str, Any]) -> None:
    for arm, cell in cells.items():
        if arm == "start":
            assert "ledger" not in cell
            continue
        tokens = cell["curves"]["budget/tokens"]
        assert cell["ledger"]["tokens"] == tokens[-1] >= 1500
        assert all(before < 1500 for before in tokens[: -len([one for one in tokens if one >= 1500])])
        assert len({*tokens}) == cell["updates"]
        assert (cell["ledger"]["counterfactual_tokens"] > 0) == (arm == "CVT-RL")


def test_policies_are_measured_on_the_same_held_out_tasks(cells: dict[str, Any]) -> None:
    for cell in cells.values():
        held_out = cell["held_out"]
        assert {len(held_out[name]) for name in ("verified", "check", "f1", "hacked", "held_out_hacked")} == {8}
        assert all(own <= wide for own, wide in zip(held_out["held_out_hacked"], held_out["hacked"], strict=True))
        assert set(held_out["costs"]) >= {"tampering", "unsupported", "skipped", "unsafe", "budget"}


def test_contributions_are_measured_against_exact_ones(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = scripts["fidelity"]
    told = {("still", 2): "taught by one update", ("lagging", 2): "and the copy one behind"}
    monkeypatch.setattr(module, "UPDATES", told)
    still = dataclasses.replace(
        module.STILL,
        world={**module.STILL.world, "turns": 2},
        policy=MicroConfig(hidden_size=32, layers=2, heads=2, quality=0.5, episodes=48, epochs=15, batch_rows=16),
        training={**module.STILL.training, "instances_per_update": 2, "per_device_train_batch_size": 2},
    )
    lagging = dataclasses.replace(still, training={**still.training, "learning_rate": 1e-3})
    cells = {}
    for name, experiment in {"still": still, "lagging": lagging}.items():
        (tmp_path / name / "cells").mkdir(parents=True)
        if name == "lagging":  # starts alike
            shutil.copytree(tmp_path / "still" / "starts", tmp_path / name / "starts")
        module.run_cell(experiment, module.CVT, 0, tmp_path / name)
        cells[name] = json.loads((tmp_path / name / "cells" / "0.json").read_text(encoding="utf-8"))
    (row,), (behind,) = (cells[name]["updates"] for name in ("still", "lagging"))
    assert row["update"] == 2
    assert 0 < row["steps"] == len(row["exact"])
    assert all(-1 <= value <= 1 for value in row["exact"])
    assert 0 <= row["unseen"] < 1
    # The policy plays on by itself, so nothing is left of the model in a doubly robust value.
    assert row["fidelity"]["dr"]["squared_error"] == pytest.approx(row["fidelity"]["ips"]["squared_error"])
    assert row["fidelity"]["model"]["squared_error"] != row["fidelity"]["ips"]["squared_error"]
    assert behind["fidelity"]["dr"]["squared_error"] != behind["fidelity"]["ips"]["squared_error"]
    written = module.markdown([*cells.values()])
    assert all(one in written for one in told.values())


def test_outcomes_of_the_copy_teach_what_steps_are_worth_to_it_and_a_clipped_ratio_does_not(
    scripts: dict[str, ModuleType],
) -> None:
    module = scripts["tabular"]
    game = module.Game(documents=2, values=2, turns=4)
    every = module.policies(game, module.ARMS["contribution to verified success"], 0.5)
    copy, *_, policy = (next(every) for _ in range(9))
    models = module.outcome_models(game, copy, policy, branches=2)
    of_policy, weighed, of_copy, none = models.values()
    assert of_copy["m bias"] == 0 < weighed["m bias"] < of_policy["m bias"]
    assert of_copy["dr correlation"] > weighed["dr correlation"] > of_policy["dr correlation"]
    assert abs(none["dr bias"]) < of_copy["dr bias"]  # a model adds the bias of the clip that it stands in for
    for told in models.values():
        assert told["pooled bias"] == pytest.approx(told["dr bias"] / 3)
    same = module.outcome_models(game, policy, policy, branches=2)
    assert all(told["dr bias"] == pytest.approx(0, abs=1e-9) for told in same.values())


def _cell(arm: str, seed: int, verified: list[int]) -> dict[str, Any]:
    held_out = dict.fromkeys(("verified", "check", "f1", "hacked", "held_out_hacked"), verified)
    return {
        "arm": arm,
        "seed": seed,
        "updates": 2,
        "held_out": {**held_out, "costs": {"tampering": 0.0}},
        "curves": {"verified": [0.1, 0.5], "hacks/true": [0.9, 0.2], "budget/tokens": [40, 100]},
        "ledger": {"tokens": 100, "counterfactual_tokens": 25, "scoring_events": 7},
        "cpu_seconds": {"training": 1.0, "measuring": 1.0},
    }


def test_the_deciding_test_flips_the_signs_of_seeds(scripts: dict[str, ModuleType]) -> None:
    table, module = scripts["table"], scripts["experiment"]
    arms = {module.CVT: [1, 1, 1, 0], module.COMPUTE: [1, 0, 0, 0], module.INFORMATION: [1, 1, 1, 0]}
    cells = {arm: {seed: _cell(arm, seed, values) for seed in range(5)} for arm, values in arms.items()}
    written = table.markdown(cells)
    # Always ahead by one half: of 2^5 patterns of signs two are so extreme, 0.0625, and six tests make it 0.375.
    assert "| verified success | compute-matched | 5 | +0.500 [+0.500, +0.500] | 0.0625 | 0.3750 |" in written
    assert "| verified success | information-matched | 5 | +0.000 [+0.000, +0.000] | 1.0000 |" in written
    assert "| CVT-RL | 2.0 | 100 | 25% | 7 | 1 |" in written


def test_a_curve_is_read_where_a_share_of_the_tokens_is_spent(scripts: dict[str, ModuleType]) -> None:
    curves = _cell("CVT-RL", 0, [0])["curves"]
    assert scripts["table"]._at(curves, 0.4) == (0.1, 0.9)
    assert scripts["table"]._at(curves, 0.41) == (0.5, 0.2)


def test_what_was_forgotten_is_the_best_of_eight_updates_less_the_last(scripts: dict[str, ModuleType]) -> None:
    best_and_last = scripts["table"]._best_and_last
    assert best_and_last([0.0] * 4 + [1.0] * 8 + [0.5] * 4 + [0.0] * 4) == (1.0, 0.25)
    assert best_and_last([0.25] * 8 + [0.75] * 8) == (0.75, 0.75)
    assert best_and_last([1.0] * 15) is None


def test_every_arm_has_ten_seeds_and_the_arms_that_decide_come_first(scripts: dict[str, ModuleType]) -> None:
    module = scripts["experiment"]
    short, long = module.EXPERIMENT.cells(), module.LONG.cells()
    assert len(short) == 10 * (1 + 13)
    assert len(long) == 10 * (1 + 8)
    assert short[:10] == long[:10] == [(module.BASE, seed) for seed in range(10)]
    assert {arm for arm, _ in long[10:40]} == {module.CVT, module.INFORMATION, module.COMPUTE}
    assert module.LONG.settings() != module.EXPERIMENT.settings()


def test_arms_may_be_run_one_after_another_and_unknown_ones_are_told(
    scripts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        scripts["run"].main(["--schedule", "long", "--arms", "CVT-RL without the gate", "--work", str(tmp_path)])
    assert "got 'CVT-RL without the gate'; name these" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_parts_are_tested_against_the_whole_method_seed_by_seed(scripts: dict[str, ModuleType]) -> None:
    table, module = scripts["table"], scripts["experiment"]
    arms = {module.CVT: [1, 1, 1, 0], module.ABLATIONS[0]: [1, 0, 0, 0], module.ABLATIONS[3]: [1, 1, 1, 0]}
    cells = {arm: {seed: _cell(arm, seed, values) for seed in range(6)} for arm, values in arms.items()}
    written = table.markdown(cells)
    # Of 2^6 patterns of signs two are so extreme, 0.03125, and two tests make it 0.0625.
    assert "| CVT-RL, its own policy plays on | 6 | +0.500 [+0.500, +0.500] | 0.0312 | 0.0625 |" in written
    assert "| CVT-RL without the gate | 6 | +0.000 [+0.000, +0.000] | 1.0000 | 1.0000 |" in written


def test_the_committed_fidelity_is_that_of_its_data(scripts: dict[str, ModuleType], root: Path) -> None:
    results = root / "evaluation" / "cvt" / "results"
    told = json.loads((results / "fidelity.json").read_text(encoding="utf-8"))
    assert scripts["fidelity"].markdown(told) == (results / "fidelity.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("schedule", ["short", "long", "half_rate"])
def test_the_committed_tables_are_those_of_the_committed_cells(scripts: dict[str, ModuleType], schedule: str) -> None:
    results = scripts["table"].RESULTS[schedule]
    cells = scripts["table"].read_cells([results / "cells.json"])
    assert scripts["table"].markdown(cells) == (results / "results.md").read_text(encoding="utf-8")
    assert json.loads((results / "cells.json").read_text(encoding="utf-8"))[0]["made_with"]
