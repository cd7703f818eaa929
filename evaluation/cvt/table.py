"""The tables of the comparison from finished cells.

python evaluation/cvt/table.py        # again from the committed results/cells.json, without training anything
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import ARMS, BASE, COMPUTE, CVT, INFORMATION

from hf_credit.evaluation.report import table
from hf_credit.evaluation.statistics import (
    Interval,
    holm,
    mean_interval,
    paired_difference,
    permutation_test,
    stratified_paired_difference,
)

CELLS_FILE = "cells.json"
Cell = Mapping[str, Any]
Cells = Mapping[str, Mapping[int, Cell]]
"""Finished cells by arm, and by seed."""

TASKS = {"verified success": "verified", "evidence F1": "f1", "hacked": "hacked"}
"""What is tested, and under which name the cells hold it, a number for each held-out task."""
COLUMNS = {**TASKS, "held-out hacks": "held_out_hacked", "the check": "check"}
"""What is shown, likewise."""
AGAINST = (COMPUTE, INFORMATION)
"""What CVT-RL is tested against."""


def read_cells(paths: Iterable[Path]) -> Cells:
    """The cells in some files, each with one cell or a list of them."""
    found: dict[str, dict[int, Cell]] = {}
    for path in sorted(paths):
        value = json.loads(path.read_text(encoding="utf-8"))
        for cell in value if isinstance(value, list) else [value]:
            found.setdefault(cell["arm"], {})[cell["seed"]] = cell
    return found


def write(cells: Cells, folder: Path) -> None:
    """Writes `cells.json`, from which all else follows, and `results.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    every = [cells[arm][seed] for arm in sorted(cells) for seed in sorted(cells[arm])]
    lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in every)
    (folder / CELLS_FILE).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    (folder / "results.md").write_text(markdown(cells), encoding="utf-8")


def markdown(cells: Cells) -> str:
    """All tables."""
    arms = [arm for arm in (BASE, *ARMS) if arm in cells]
    trained = [arm for arm in arms if arm != BASE]
    return "\n".join(
        [
            "# Results",
            "",
            "Written by `evaluation/cvt/table.py`; do not edit. How to read it: `../README.md`.",
            "",
            *_deciding(cells),
            "## After training, on held-out tasks",
            "",
            "Means over seeds with 95% intervals (Student's t); a share of episodes but for F1.",
            "",
            table(
                ["", "seeds", *COLUMNS],
                [[arm, str(len(cells[arm])), *(_cell(of_arm(cells, arm, one)) for one in COLUMNS)] for arm in arms],
            ),
            "",
            "Mean costs of an episode; the limits are .02, .04, .03, .06 and .15, and none for null actions.",
            "",
            _costs(cells, arms),
            "",
            "## On the way, in training",
            "",
            "Verified success and episodes with a hack, means over seeds, of the update in which the tokens came to a "
            "share of all.",
            "",
            _curves(cells, trained),
            "",
            "## What a training took",
            "",
            _ledger(cells, trained),
            "",
        ]
    )


def of_arm(cells: Cells, arm: str, column: str, seeds: Sequence[int] | None = None) -> list[float]:
    """One number a seed."""
    own = cells.get(arm, {})
    return [fmean(own[seed]["held_out"][COLUMNS[column]]) for seed in (sorted(own) if seeds is None else seeds)]


def _deciding(cells: Cells) -> list[str]:
    found = []
    for against, column in itertools.product(AGAINST, TASKS):
        seeds = sorted(set(cells.get(CVT, {})) & set(cells.get(against, {})))
        if len(seeds) < 2:
            return []
        ours, theirs = (of_arm(cells, arm, column, seeds) for arm in (CVT, against))
        tasks = [
            [value for seed in seeds for value in cells[arm][seed]["held_out"][TASKS[column]]]
            for arm in (CVT, against)
        ]
        strata = [seed for seed in seeds for _ in cells[CVT][seed]["held_out"][TASKS[column]]]
        found.append(
            (
                [column, against, str(len(seeds)), _interval(paired_difference(ours, theirs))],
                permutation_test(ours, theirs).p_value,
                _interval(stratified_paired_difference(*tasks, strata, resamples=1000)),
            )
        )
    adjusted = holm([p for _, p, _ in found])
    rows = [[*row, f"{p:.4f}", f"{held:.4f}", tasks] for (row, p, tasks), held in zip(found, adjusted, strict=True)]
    return [
        "## The deciding test",
        "",
        "CVT-RL less each of the two, from the same starts, at equal tokens. Exact sign-flip test over seeds, Holm "
        "over the six; the first interval is over seeds, the last over held-out tasks within these seeds.",
        "",
        table(["", "CVT-RL less", "seeds", "difference", "p", "p, Holm", "over tasks"], rows),
        "",
    ]


def _costs(cells: Cells, arms: Sequence[str]) -> str:
    names = list(next(iter(cells[arms[0]].values()))["held_out"]["costs"])
    rows = [
        [arm, *(f"{fmean(cell['held_out']['costs'][name] for cell in cells[arm].values()):.3f}" for name in names)]
        for arm in arms
    ]
    return table(["", *names], rows)


def _curves(cells: Cells, arms: Sequence[str], shares: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 1.0)) -> str:
    rows = []
    for arm in arms:
        row = [arm]
        for share in shares:
            found = [_at(cell["curves"], share) for cell in cells[arm].values()]
            row.append(f"{fmean(one for one, _ in found):.2f}, {fmean(one for _, one in found):.2f}")
        rows.append(row)
    return table(["", *(f"{share:.0%} of the tokens" for share in shares)], rows)


def _at(curves: Mapping[str, Sequence[float]], share: float) -> tuple[float, float]:
    """Verified success and hacks of the first update with so many tokens."""
    tokens = curves["budget/tokens"]
    place = next(at for at, value in enumerate(tokens) if value >= share * tokens[-1])
    return curves["verified"][place], curves["hacks/true"][place]


def _ledger(cells: Cells, arms: Sequence[str]) -> str:
    rows = []
    for arm in arms:
        own = list(cells[arm].values())
        tokens = fmean(cell["ledger"]["tokens"] for cell in own)
        apart = fmean(cell["ledger"]["counterfactual_tokens"] for cell in own)
        rows.append(
            [
                arm,
                f"{fmean(cell['updates'] for cell in own):.1f}",
                f"{tokens:,.0f}",
                f"{apart / tokens:.0%}",
                f"{fmean(cell['ledger']['scoring_events'] for cell in own):,.0f}",
                f"{fmean(cell['cpu_seconds']['training'] for cell in own):.0f}",
            ]
        )
    return table(["", "updates", "tokens", "of which counterfactual", "scores", "processor seconds"], rows)


def _cell(values: Sequence[float]) -> str:
    return f"{values[0]:.3f}" if len(values) == 1 else _interval(mean_interval(values), signed=False)


def _interval(interval: Interval, signed: bool = True) -> str:
    sign = "+" if signed else ""
    return f"{interval.mean:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=here / "results", help="holds cells.json, gets the tables")
    options = parser.parse_args(arguments)
    write(read_cells([options.results / CELLS_FILE]), options.results)


if __name__ == "__main__":
    main()
