"""The evidence of `evaluation/agents`: its script on a tiny version, and its sums against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = "agents"


def test_a_cell_spends_its_budget_and_is_measured_on_held_out_rows(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scripts["run"]
    for split in ("train", "held_out"):
        rows = (run.EXAMPLE / f"{split}.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / f"{split}.jsonl").write_text("".join(rows[:4]))
    monkeypatch.setattr(run, "EXAMPLE", tmp_path)
    warm_up = scripts["warm_up"]
    small = dataclasses.replace(warm_up.POLICY, hidden_size=16, layers=1, heads=2, episodes=4, epochs=2)
    warm_up.build(tmp_path / "start", small)
    (tmp_path / "cells").mkdir()
    training = {"instances_per_update": 2, "per_device_train_batch_size": 2, "max_completion_length": 16}
    tiny = {**run.EXPERIMENT, "budget": 1, "training": {**run.EXPERIMENT["training"], **training}}
    run.run_cell(tiny, "replay_loo", 1e-3, 0, tmp_path)
    cell = json.loads(run.cell_file(tmp_path, "replay_loo", 1e-3, 0).read_text())
    assert (cell["updates"], cell["scores"] <= 2 * 8, cell["sampled_tokens"] > 1) == (1, True, True)
    assert cell["success"] in (0.0, 0.25, 0.5, 0.75, 1.0)


def cells_of(run: ModuleType, success: dict[tuple[str, float], list[float]]) -> dict[Any, Any]:
    """Finished cells with these numbers, the first with the tuning seed."""
    costs = dict.fromkeys(run.COSTS, 1)
    return {
        (method, rate): {
            seed: {"method": method, "rate": rate, "seed": seed, "success": value, **costs}
            for seed, value in zip([run.TUNING, *run.SEEDS], values, strict=False)
        }
        for (method, rate), values in success.items()
    }


def test_each_method_has_the_rate_of_its_tuning_seed_and_is_compared_seed_by_seed(
    scripts: dict[str, ModuleType],
) -> None:
    run = scripts["run"]
    slow, fast = run.RATES
    success = {(method, rate): [0.5] for method in run.METHODS for rate in run.RATES}
    success["grpo", fast] = [0.6, 0.1, 0.2, 0.3]
    success["vineppo", slow] = [0.5, 0.2, 0.4, 0.6, 0.9]
    cells = cells_of(run, success)
    assert run.rates(cells) == {"grpo": fast, "turn_credit": slow, "vineppo": slow, "replay_loo": slow}
    # Three pairs, .1, .2 and .3 apart: 0.2 +- 4.303 * 0.1 / sqrt(3); two of eight sign patterns are as far out.
    assert "| vineppo | 3 | +0.200 [-0.048, +0.448] | 0.250 | undecided |" in run.markdown(cells)


def test_the_committed_tables_are_those_of_the_committed_cells(scripts: dict[str, ModuleType], root: Path) -> None:
    results, run = root / "evaluation" / "agents" / "results", scripts["run"]
    cells = scripts["finished_cells"].read([results / "cells.json"], run.key)
    told = run.markdown(cells)
    assert told == (results / "results.md").read_text(encoding="utf-8")
    quoted = re.findall(r"[+-]?\d\.\d{3} \[[^\]]+\]", (root / "evaluation" / "agents" / "README.md").read_text())
    assert quoted
    assert [one for one in quoted if one not in told] == []
