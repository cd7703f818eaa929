"""The tables of the comparison from finished cells.

python evaluation/cvt/table.py        # again from the committed results/cells.json, without training anything
python evaluation/cvt/table.py --results evaluation/cvt/results/long
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import ABLATIONS, ARMS, BASE, COMPUTE, CVT, FREE, INFORMATION
from finished_cells import Cell, interval, mean, read, write, write_again

from hf_credit.evaluation.report import table
from hf_credit.evaluation.statistics import holm, paired_difference, permutation_test, stratified_paired_difference

Cells = Mapping[str, Mapping[int, Cell]]
"""Finished cells by arm, and by seed."""

TASKS = {"verified success": "verified", "evidence F1": "f1", "hacked": "hacked"}
"""What is tested, and under which name the cells hold it, a number for each held-out task."""
COLUMNS = {**TASKS, "held-out hacks": "held_out_hacked", "the check": "check"}
"""What is shown, likewise."""
AGAINST = (COMPUTE, INFORMATION)
"""What CVT-RL is tested against."""
WINDOW = 8
"""Updates whose mean stands for a policy of that time."""
_SHORT = Path(__file__).resolve().parent / "results"
RESULTS: Mapping[str, Path] = {"short": _SHORT, "long": _SHORT / "long", "half_rate": _SHORT / "half_rate"}
"""The folders of the committed tables, by schedule."""


def read_cells(paths: Iterable[Path]) -> Cells:
    """The cells in some files, each with one cell or a list of them."""
    return read(paths, lambda cell: cell["arm"])


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells in some files, and the tables, into a folder."""
    cells = read_cells(paths)
    write(cells, folder, markdown(cells))


def markdown(cells: Cells) -> str:
    """All tables."""
    arms = [arm for arm in (BASE, *ARMS) if arm in cells]
    trained = [arm for arm in arms if arm != BASE]
    return "\n".join(
        [
            "# Results",
            "",
            "Written by `evaluation/cvt/table.py`; do not edit. How to read it: the README of `evaluation/cvt`.",
            "",
            *_deciding(cells),
            *_ablations(cells),
            "## After training, on held-out tasks",
            "",
            "Means over seeds with 95% intervals (Student's t); a share of episodes but for F1.",
            "",
            table(
                ["", "seeds", *COLUMNS],
                [[arm, str(len(cells[arm])), *(mean(of_arm(cells, arm, one)) for one in COLUMNS)] for arm in arms],
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
            f"The best mean of {WINDOW} updates in a row, by seed, and how far the last {WINDOW} are below it: what "
            f"was forgotten. A training of fewer than {2 * WINDOW} is left out.",
            "",
            _forgotten(cells, trained),
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
                [column, against, str(len(seeds)), interval(paired_difference(ours, theirs), signed=True)],
                permutation_test(ours, theirs).p_value,
                interval(stratified_paired_difference(*tasks, strata, resamples=1000), signed=True),
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


def _ablations(cells: Cells) -> list[str]:
    found = []
    for arm in (FREE, *ABLATIONS):
        seeds = sorted(set(cells.get(CVT, {})) & set(cells.get(arm, {})))
        if len(seeds) > 1:
            ours, theirs = (of_arm(cells, one, "verified success", seeds) for one in (CVT, arm))
            difference = interval(paired_difference(ours, theirs), signed=True)
            found.append(([arm, str(len(seeds)), difference], permutation_test(ours, theirs).p_value))
    if not found:
        return []
    adjusted = holm([p for _, p in found])
    rows = [[*row, f"{p:.4f}", f"{held:.4f}"] for (row, p), held in zip(found, adjusted, strict=True)]
    return [
        "## What each part does",
        "",
        "Verified success of CVT-RL less that of CVT-RL with one part changed, from the same starts, at equal tokens. "
        f"Exact sign-flip test over seeds, Holm over the {len(rows)}.",
        "",
        table(["CVT-RL less", "seeds", "difference", "p", "p, Holm"], rows),
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


def _forgotten(cells: Cells, arms: Sequence[str]) -> str:
    rows = []
    for arm in arms:
        found = [_best_and_last(cell["curves"]["verified"]) for _, cell in sorted(cells[arm].items())]
        lost = [best - last for best, last in filter(None, found)]
        if lost:
            shown = ["-" if one is None else f"{one[0]:.2f} -{one[0] - one[1]:.2f}" for one in found]
            rows.append([arm, f"{fmean(lost):.2f}", *shown])
    most = max((len(row) for row in rows), default=2) - 2
    return table(["", "mean", *(f"seed {seed}" for seed in range(most))], rows)


def _best_and_last(verified: Sequence[float]) -> tuple[float, float] | None:
    """The best and the last mean over so many updates in a row; `None` where both would be nearly the same."""
    if len(verified) < 2 * WINDOW:
        return None
    means = [fmean(verified[at : at + WINDOW]) for at in range(len(verified) - WINDOW + 1)]
    return max(means), means[-1]


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


if __name__ == "__main__":
    write_again(__doc__, RESULTS["short"], write_tables)
