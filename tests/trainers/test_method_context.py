"""What a method records of an update on several processes."""

from __future__ import annotations

import json
from pathlib import Path

from launched import launch


def test_a_metric_covers_all_processes_even_if_only_one_recorded_it(micro_policy: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("recorded_run.py")
    launch(script, micro_policy, tmp_path, processes=2, folder=tmp_path, environment={"ACCELERATE_USE_CPU": "true"})
    reports = [json.loads((tmp_path / f"process_{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    update = {
        "recorded/by_one": 3.0,
        "recorded/total_of_one": 5.0,
        "recorded/by_both": 6.0,  # of the four values: that of the processes' means would be 4
        "recorded/total": 13.0,
    }
    assert reports == [{"processes": 2, "logged": [update, update]}] * 2
