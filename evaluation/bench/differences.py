"""Differences in the area under the learning curve, from the cells with exact critics and oracles.

    python evaluation/bench/differences.py

writes `differences.md` beside it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import paired_difference

HERE = Path(__file__).parent
PAIRS = [
    ("counterfactual_grpo", "grpo", ["vote"]),
    ("verifiable_process", "outcome_reward", ["verdict"]),
    ("replay_loo", "magrpo", ["late", "relay"]),
    ("replay_loo", "mappo", ["relay"]),
    ("vineppo", "ppo", None),
]


def main() -> None:
    cells = pd.read_parquet(HERE / "cells.parquet")
    exact = (cells["critic"] == "exact") & (cells["oracle_error"] == 0)
    learned = cells[exact & (cells["policy"] == "start") & cells["areas"].notna()]
    areas = {(one.method, one.problem): list(one.areas) for one in learned.itertuples()}
    rows = []
    for method, other, problems in PAIRS:
        for problem in problems or sorted({problem for _, problem in areas}):
            difference = paired_difference(areas[method, problem], areas[other, problem])
            interval = f"{difference.mean:+.3f} [{difference.low:.3f}, {difference.high:.3f}]"
            rows.append([method, other, problem, interval])
    text = "# Differences in learning\n\nArea under the learning curve, exact critics, 95 % intervals over seeds.\n\n"
    (HERE / "differences.md").write_text(
        text + table(["method", "less", "problem", "difference"], rows) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
