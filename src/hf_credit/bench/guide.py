"""From cells to what a person reads: tables, plots, and which method to take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_credit.bench.measures import make_problem
from hf_credit.bench.play import REFERENCES
from hf_credit.bench.problems import PROBLEMS
from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import mean_with_interval

Cells = Sequence[Mapping[str, Any]]

_GUIDE = """\
Find the line that is most like your task. A number is the area under a method's learning curve: the mean of the exact
success of its policy over a fixed budget of tokens, replays and comparison episodes included; 0 is the start, 1 the
best there is. Each has {seeds} seeds, and a step size chosen on other seeds. The brackets are 95 % intervals. *Not
told from it* are methods whose interval meets that of the best.

Critics are {critic} here: `--critic exact` says the exact value, so `ppo` and `mappo` are at their best; with `noisy`
or `untaught` ones they are not. An oracle tells `verifiable_process` which actions are right, with an error in
`verdict` alone; take it where you have one. Policies are tables: states share nothing, as they do in a network."""

_AGREEMENT = """\
The rank correlation, over methods, of the signal per token at the start (along the true gradient) with the area under
the learning curve. Near 1 the cost of signal tells which method to take, near 0 it does not."""


def write_parquet(cells: Cells, path: Path) -> None:
    """The cells as one table, as the Hub shows it."""
    from datasets import Dataset

    rows = [{**cell, **{name: json.dumps(cell[name]) for name in ("dials", "options")}} for cell in cells]
    names = dict.fromkeys(name for row in rows for name in row if name != "failed")  # no cell here did
    Dataset.from_list([{name: row.get(name) for name in names} for row in rows]).to_parquet(str(path))


def tables(cells: Cells) -> str:
    """Every cell in Markdown, a table a problem and policy, cheapest first."""
    parts = ["# CreditBench\n"]
    for (problem, dials, policy), group in _groups(cells).items():
        parts.append(f"\n## {problem}{dials}, {policy}\n\n{_isolates(problem)}\n")
        limit = next((one["trace"] for one in group if one["method"] == "exact_advantage"), None)
        rows = [_row(one, limit) for one in sorted(_played(group), key=lambda one: one["trace"] or math.inf)]
        parts.append(
            table(
                [
                    "method",
                    "angle",
                    "scale",
                    "credit off",
                    "along",
                    "trace",
                    "of the limit",
                    "area under J",
                    "to 90 %",
                    "ms",
                ],
                rows,
            )
        )
        parts.extend(f"\n{one['method']} does not fit: {one['refused']}\n" for one in group if one["refused"])
    return "\n".join(parts)


def _groups(cells: Cells) -> dict[tuple[str, str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        dials = "".join(f" {name}={value}" for name, value in sorted(cell["dials"].items()))
        groups.setdefault((cell["problem"], dials, cell["policy"]), []).append(cell)
    return groups


def _played(group: Cells) -> list[Mapping[str, Any]]:
    return [cell for cell in group if cell["refused"] is None]


def _row(cell: Mapping[str, Any], limit: float | None) -> list[str]:
    share = "" if not limit or not cell["trace"] else f"{100 * limit / cell['trace']:.1f} %"
    areas = mean_with_interval(cell["areas"]) if len(cell.get("areas") or ()) > 1 else None
    solved = [one for one in cell.get("tokens_to_90") or () if one is not None]
    return [
        cell["method"],
        _with_error(cell["angle"], cell["angle_error"], "°"),
        _number(cell["scale"]),
        _number(cell["credit_error"]),
        _with_error(cell["along"], cell["along_error"]),
        _with_error(cell["trace"], cell["trace_error"]),
        share,
        "" if areas is None else f"{areas.mean:.3f} [{areas.low:.3f}, {areas.high:.3f}]",
        "" if areas is None else f"{len(solved)} of {areas.n}" + (f", {np.median(solved):.0f}" if solved else ""),
        f"{1000 * cell['seconds']:.1f}",
    ]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _with_error(value: float | None, error: float | None, unit: str = "") -> str:
    if value is None or error is None:
        return "no signal seen"
    return f"{value:.3g}{unit} ± {error:.2g}"


def _isolates(problem: str) -> str:
    return make_problem(problem).isolates if problem in PROBLEMS else ""


def ranked(group: Cells) -> list[tuple[Mapping[str, Any], float, float, float]]:
    """The methods that learned, by the area under J, each with its mean and interval; references are left out."""
    found = []
    for cell in _played(group):
        if cell["method"] not in REFERENCES and len(cell.get("areas") or ()) > 1:
            areas = mean_with_interval(cell["areas"])
            found.append((cell, areas.mean, areas.low, areas.high))
    return sorted(found, key=lambda one: -one[1])


def prediction(cells: Cells) -> list[tuple[str, int, float]]:
    """Of each problem how many methods learned in it, and the rank correlation of their signal per token with that.

    Spearman's, between 1 / cost along the gradient at the start and the area under J.
    """
    import pandas as pd

    found = []
    for (problem, dials, policy), group in _groups(cells).items():
        pairs = [(-one["along"], mean) for one, mean, _, _ in ranked(group) if one["along"]]
        if policy == "start" and len(pairs) > 3:
            signal, learned = (pd.Series(values).rank() for values in zip(*pairs, strict=True))
            found.append((problem + dials, len(pairs), float(signal.corr(learned))))
    return found


def which_method(cells: Cells, command: str) -> str:
    """The guide: for each property the methods that learned most, those that cannot be told from the best included.

    Args:
        cells: with learning.
        command: that made them and this page.
    """
    rows = []
    for (problem, dials, policy), group in _groups(cells).items():
        if policy != "start" or not (order := ranked(group)):
            continue
        best = order[0]
        level = [one for one in order[1:] if one[3] >= best[2]]
        limit = next((one for one in group if one["method"] == "exact_advantage" and one.get("areas")), None)
        rows.append(
            [
                _isolates(problem) or problem,
                f"`{problem}`{dials}",
                _named(best),
                ", ".join(map(_named, level[:4])) + (f" and {len(level) - 4} more" if len(level) > 4 else "")
                or "none",
                "" if limit is None else f"{np.mean(limit['areas']):.2f}",
                _named(order[-1]),
            ]
        )
    header = ["Your task", "problem", "learned most", "not told from it", "exact advantage", "learned least"]
    agreement = prediction(cells)
    return "\n".join(
        [
            "# Which method?",
            "",
            _GUIDE.format(seeds=max(len(cell.get("areas") or ()) for cell in cells), critic=cells[0]["critic"]),
            "",
            table(header, rows),
            "",
            "## Does a cheaper signal learn faster?",
            "",
            _AGREEMENT,
            "",
            table(
                ["problem", "methods", "rank correlation"], [[name, str(n), f"{r:.2f}"] for name, n, r in agreement]
            ),
            "",
            f"This page was written from the cells by `{command}`.",
            "",
        ]
    )


def _named(one: tuple[Mapping[str, Any], float, float, float]) -> str:
    cell, mean, low, high = one
    return f"`{cell['method']}` {mean:.2f} [{low:.2f}, {high:.2f}]"


def draw(cells: Cells, path: Path) -> Path:
    """The area under the learning curve of each method in each problem, with its interval; the limit as a line."""
    from matplotlib.figure import Figure

    groups = [(key, group) for key, group in _groups(cells).items() if key[2] == "start" and ranked(group)]
    names = sorted({one[0]["method"] for _, group in groups for one in ranked(group)})
    columns = min(4, len(groups))
    rows = -(-len(groups) // columns)
    drawn = Figure(layout="constrained", figsize=(3.2 * columns + 1.6, (0.19 * len(names) + 0.9) * rows))
    axes = drawn.subplots(rows, columns, sharey=True, squeeze=False)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, ((problem, dials, _), group) in zip(axes.flat, groups, strict=False):
        for cell, mean, low, high in ranked(group):
            place = names.index(cell["method"])
            axis.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", markersize=3, color="tab:blue")
        limit = next((one for one in group if one["method"] == "exact_advantage" and one.get("areas")), None)
        if limit is not None:
            axis.axvline(float(np.mean(limit["areas"])), color="tab:gray", linestyle="--", linewidth=1)
        axis.set_title(problem + dials, fontsize=9)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.tick_params(axis="x", labelsize=7)
        axis.set_xlim(-0.05, 1)
    drawn.supxlabel("area under the learning curve (0: start, 1: best; dashed: exact advantage)", fontsize=8)
    drawn.savefig(path, dpi=110)
    return path
