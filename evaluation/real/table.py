"""Writes the tables and the plots of `run.py` again from the finished cells.

python evaluation/real/table.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from drawing import tidy
from finished_cells import common_seeds, interval, mean, read, verdict, write, write_again
from matplotlib.figure import Figure
from run import BEFOREHAND, LAST, METHODS, PILOT_SEED, SEEDS, START, key

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.plots import smoothed
from hf_credit.evaluation.statistics import holm, mean_interval, paired_difference, permutation_test

HERE = Path(__file__).resolve().parent
Cells = Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]
TITLES = {
    "sudoku": "4x4 Sudoku, 4 blanks",
    "sudoku_8": "4x4 Sudoku, 8 blanks",
    "sudoku_12": "4x4 Sudoku, 12 blanks",
    "sql_agent": "questions to a database, by an agent",
    "lookups": "six to eight lookups, by an agent",
    "lookups_taught": "six to eight lookups, by an agent that knows more",
}
COSTS = {
    "updates": "updates",
    "sampled_tokens": "tokens sampled",
    "tokens": "sampled and shown",
    "scores": "scores",
    "seconds": "seconds",
}
COLOURS = ("#777777", "#0072b2", "#d55e00", "#009e73")  # apart for the colour-blind too
POINTS = 40  # of a curve


def seeds_of(cells: Cells, task: str, *methods: str) -> list[int]:
    """The seeds that all of these methods have finished."""
    return [seed for seed in common_seeds(cells, *((task, method) for method in methods)) if seed in SEEDS]


def tasks_of(cells: Cells) -> list[str]:
    """The tasks whose start has been made."""
    return [task for task in METHODS if (task, START) in cells]


def markdown(cells: Cells) -> str:
    """The tables."""
    looks, rows, compared = [], [], []
    for task in tasks_of(cells):
        behind, *others = METHODS[task]
        start = cells[task, START][0]
        looks.append([task, f"{start['warm_up'][-1][0]:g}", f"{start['success']:.3f}"])
        for method in (behind, *others):
            own = [cells[task, method][seed] for seed in seeds_of(cells, task, method)]
            costs = [f"{fmean(cell[cost] for cell in own):,.0f}" if own else "" for cost in COSTS]
            rows.append([task, method, str(len(own)), mean([cell["success"] for cell in own]), *costs])
        tests = []
        for method in others:
            if len(seeds := seeds_of(cells, task, method, behind)) > 1:
                left, right = ([cells[task, one][s]["success"] for s in seeds] for one in (method, behind))
                tests.append((method, left, right, permutation_test(left, right).p_value))
        family = [p for method, *_, p in tests if method not in LAST]
        corrected = iter(holm(family) if family else ())
        for method, left, right, own in tests:
            p = own if method in LAST else next(corrected)
            found, ahead = paired_difference(left, right), sum(a > b for a, b in zip(left, right, strict=True))
            ends = [f"{ahead} of {len(left)}", f"{p:.3f}", verdict(found, p, behind="behind")]
            compared.append([task, f"{method} - {behind}", interval(found, signed=True), *ends])
    told = [
        [task, method, f"{one['silent']:.0%}", f"{one['equal']:.0%}", _tokens(one["cost"])]
        for task in METHODS
        for one_cell in cells.get((task, BEFOREHAND), {}).values()
        for method, one in one_cell["signals"].items()
    ]
    header = ["task", "method", "collections without signal", "groups of one outcome", "tokens until it equals noise"]
    before = "What the signal was at the longer starts, before any training from them"
    signals = f"{before}:\n\n{table(header, told)}\n\n" if told else ""
    piloted = [
        [task, arm, *(f"{fmean(part):.2f}" for part in _ends([success for _, success in own[PILOT_SEED]["curve"]]))]
        for (task, arm), own in cells.items()
        if PILOT_SEED in own
    ]
    header = ["task", "method@rate", "first fifth", "last third"]
    pilot = (
        f"A pilot of rates, which tests no claim: success in training\n\n{table(header, piloted)}\n\n"
        if piloted
        else ""
    )
    return f"""# Which credit pays on a real model

Written by `evaluation/real/run.py`; do not edit. How to read it: `../README.md`.

The starts, after the warm-up:

{table(["task", "updates", "success held out"], looks)}

{signals}{pilot}Success on held-out tasks, and what training took:

{table(["task", "method", "seeds", "success", *COSTS.values()], rows)}

Differences in success, with p after Holm over the methods of a task; `turn_credit` and what begins late are tested by
themselves:

{table(["task", "methods", "difference", "seeds ahead", "p", "verdict"], compared)}
"""


def _ends(curve: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first fifth and the last third of a curve."""
    return curve[: -(-len(curve) // 5)], curve[-(-2 * len(curve) // 3) :]


def _tokens(cost: Mapping[str, Any]) -> str:
    """The tokens until signal equals noise, with their interval; an end that is not measurable is unbounded."""
    mean, low, high = ("unbounded" if cost[name] is None else f"{cost[name]:,.0f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def draw(cells: Cells, folder: Path) -> None:
    """Draws the success in training against the tokens sampled, and next to it, or below it, that held out."""
    tasks = [task for task in tasks_of(cells) if any(len(seeds_of(cells, task, one)) > 1 for one in METHODS[task])]
    for name, columns, width in (("learning", 2, 8.4), ("learning_narrow", 1, 4.2)):
        rows = 2 * len(tasks) // columns
        figure = Figure(figsize=(width, 0.2 + 3.5 * rows), dpi=130, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
        for training, held_out, task in zip(axes[::2], axes[1::2], tasks, strict=True):
            for axis in (training, held_out):
                axis.axhline(cells[task, START][0]["success"], color="black", linewidth=0.8, linestyle=":")
            shown = [method for method in METHODS[task] if len(seeds_of(cells, task, method)) > 1]
            for place, method in enumerate(shown):
                own = [cells[task, method][seed] for seed in seeds_of(cells, task, method)]
                colour = COLOURS[list(METHODS[task]).index(method)]
                line(training, [cell["curve"] for cell in own], colour, method)
                dots(held_out, place, [cell["success"] for cell in own], colour)
            training.set_title(TITLES[task], loc="left")
            tidy(training, "tokens sampled (thousands)", "success in training")
            tidy(held_out, "", "held-out success, after training")
            held_out.yaxis.set_tick_params(labelleft=True)
            held_out.set_xticks(range(len(shown)), shown)
            if shown:
                held_out.set_xlim(-0.5, len(shown) - 0.5)
                training.legend(frameon=False, loc="upper left", fontsize="small")
        figure.savefig(folder / f"{name}.png")


def dots(axis: Any, place: int, values: Sequence[float], colour: str) -> None:
    """A dot for each seed, and next to them their mean with Student's interval."""
    axis.plot([place - 0.1] * len(values), values, "o", color=colour, alpha=0.45, markeredgewidth=0)
    found = mean_interval(values)
    ends = [[found.mean - max(found.low, 0)], [min(found.high, 1) - found.mean]]  # a success lies in 0 to 1
    axis.errorbar([place + 0.1], [found.mean], yerr=ends, fmt="s", color=colour, capsize=3)


def line(axis: Any, curves: list[list[list[float]]], colour: str, label: str) -> None:
    """The mean over seeds of curves smoothed over three updates, with Student's interval."""
    first = max(curve[0][0] for curve in curves)
    last = min(curve[-1][0] for curve in curves)
    tokens = np.linspace(first, last, POINTS)
    found = []
    for curve in curves:
        x, y = zip(*curve, strict=True)
        found.append(np.interp(tokens, x, smoothed(y, 3)))
    bands = [mean_interval(values) for values in np.array(found).T]
    low, high = (np.clip(ends, 0, 1) for ends in zip(*((b.low, b.high) for b in bands), strict=True))
    axis.fill_between(tokens / 1000, low, high, color=colour, alpha=0.15, lw=0)
    axis.plot(tokens / 1000, [b.mean for b in bands], color=colour, linewidth=2, label=label)


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells and what follows from them."""
    cells = read(paths, key)
    write(cells, folder, markdown(cells))
    draw(cells, folder)


if __name__ == "__main__":
    write_again(__doc__, HERE / "results", write_tables)
