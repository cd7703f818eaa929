"""Plots of cells, for a wide page and for a phone, and the folder of pages with them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hf_credit.evaluation.plots import require_matplotlib, save
from hf_credit.evaluation.statistics import mean_with_interval
from hf_credit.files import write
from hf_credit_bench import cells as written
from hf_credit_bench.cells import DRAWN, LINES, Cells, Job, by_dial, grouped, of_defaults
from hf_credit_bench.guide import BASE, LIMIT, limit, ranked, tables, which_method, write_parquet
from hf_credit_bench.play import REFERENCES

FEATURED = DRAWN[1:]
"""The methods with a colour of their own in plots of more than seven methods."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b")  # safe for the colour-blind
_MARKERS = "osD^vPX"
_NOTHING = 1e-9
"""A smaller cost is 0 but for rounding: all updates of the exact advantage may be equal."""
_INCH = 100
"""Pixels of a page per inch of a plot, which has twice as many."""


WIDTHS = {"": 1300, "_narrow": 390}
"""The width in pixels of the page for each plot, by the ending of its file's name."""


def require_libraries() -> None:
    """Raises an `ImportError` if a library that pages need is missing."""
    require_matplotlib()
    mean_with_interval([0.0, 1.0])


def write_pages(
    folder: Path, jobs: Sequence[Job], critic: str, oracle_error: float, command: str | None, page: Path | None = None
) -> str:
    """Writes the table of a folder's cells, the page of tables, and plots and recommendations.

    Args:
        jobs: those of a run. Cells of earlier ones under the same `critic` and `oracle_error` are shown with them.
        command: that measured them; `None` for tables alone.
        page: a second place of the recommendations.

    Returns:
        The tables of the run's cells or, if there are many, where they are; empty if it has none.
    """
    known = written.read(folder / LINES)

    def of(jobs: Sequence[Job]) -> list[Mapping[str, Any]]:
        return [known[job.key] for job in jobs if job.key in known]

    if not (own := of(jobs)):
        return ""
    shown = written.with_earlier(own, written.under(list(known.values()), critic, oracle_error))
    write_parquet(list(known.values()), folder / "cells.parquet")
    write(folder / "tables.md", tables(shown))
    if command is not None:
        drawn = [file.stem for file in draw(shown, folder)]
        perfect = [replace(job, critic="exact", oracle_error=0.0) for job in jobs if job.seeds]
        exact = [] if (critic, oracle_error) == ("exact", 0.0) else of(perfect)
        write(folder / "index.md", which_method(shown, command, "", drawn, exact))
        if page is not None:
            place = f"{os.path.relpath(folder, page.parent)}/"
            write(page, which_method(shown, command, place, drawn, exact))
    return tables(own) if len(own) <= 8 else f"{len(own)} cells are in {folder}; read {folder / 'tables.md'}."


def draw(cells: Cells, folder: Path) -> list[Path]:
    """Draws every plot that the cells have data for, for each of `WIDTHS`; returns the files."""
    import matplotlib

    at_start = of_defaults(cells)
    learned = any(len(cell.get("areas") or ()) > 1 for cell in at_start)
    files = []
    for ending, width in WIDTHS.items():
        with matplotlib.rc_context({"font.size": 8 if width < 600 else 9, "axes.titlesize": 9}):
            files += [learning(at_start, folder / f"learning{ending}.png", width)] if learned else []
            files += [cost(cells, folder / f"cost{ending}.png", width)] if by_dial(cells) else []
    return files


def learning(cells: Cells, path: Path, width: int) -> Path:
    """Draws the area under the learning curve of each method, a line per problem, beside that of the exact advantage.

    Args:
        cells: with learning.
        width: of the page, in pixels.
    """
    groups = [
        (key, group, order) for key, group in grouped(cells).items() if key[2] == "start" and (order := ranked(group))
    ]
    coloured = _coloured({one[0]["method"] for _, _, order in groups for one in order})
    figure = _figure(width, 0.32 * len(groups) + (1.7 if width < 600 else 1.1))
    axis = figure.subplots()
    for place, (_, group, order) in enumerate(groups):
        axis.axhline(place, color="#e6e6e6", linewidth=0.8, zorder=0)
        if (best := limit(group)) is not None:
            axis.plot([best] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
        for cell, mean, low, high in order:
            style = coloured.get(cell["method"])
            if style is None:
                axis.plot(mean, place, ".", color="#bbbbbb", markersize=5, zorder=1)
            else:
                axis.plot([low, high], [place, place], color=style["color"], linewidth=1.2, zorder=2)
                axis.plot(mean, place, linestyle="", markersize=5, zorder=3, **style)
    axis.set_yticks(range(len(groups)), [problem + dials for (problem, dials, _), _, _ in groups])
    axis.set_ylim(len(groups) - 0.4, -0.6)
    axis.set_xlabel("area under the learning curve\n(0: the start, 1: the best there is)")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    _legend(figure, coloured, width, "exact advantage", bar=True)
    return save(figure, path)


def cost(cells: Cells, path: Path, width: int) -> Path:
    """Draws the cost of signal by trace against a dial of each problem, a line per method, with the exact advantage.

    Args:
        cells: along dials, from jobs of `hf_credit_bench.cells.along_dials`.
        width: of the page, in pixels.
    """
    lines = by_dial(cells)
    coloured = _coloured({method for curves in lines.values() for method in curves if method not in REFERENCES})
    columns = 2 if width < 600 else 4
    rows = -(-len(lines) // columns)
    figure = _figure(width, (1.75 if width < 600 else 2.4) * rows + (1.1 if width < 600 else 0.7))
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes[len(lines) :]:
        axis.set_visible(False)
    for axis, ((problem, dial), curves) in zip(axes, lines.items(), strict=False):
        values = sorted({value for points in curves.values() for value in points})
        for method, points in curves.items():
            style = coloured.get(method, {"color": "#bbbbbb"})
            if method == LIMIT:
                style = {"color": "black", "linestyle": "--"}
            costs = [points.get(value) for value in values]
            # A log scale has no 0.
            shown = [one if one is not None and one > _NOTHING else math.nan for one in costs]
            axis.plot(range(len(values)), shown, linewidth=1.4, markersize=3.5, **style)
        axis.set_yscale("log")
        axis.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axis.set_title(problem, fontweight="bold")
        axis.set_xlabel(dial, labelpad=1)
        axis.spines[["top", "right"]].set_visible(False)
        axis.minorticks_off()
    figure.supylabel("tokens until signal-to-noise is 1 (log scale)", fontsize=9)
    _legend(figure, coloured, width, "exact advantage", bar=False)
    return save(figure, path)


def _coloured(methods: set[str]) -> dict[str, dict[str, Any]]:
    """Returns the style of each method with a colour of its own."""
    styles = [{"color": colour, "marker": marker} for colour, marker in zip(_COLOURS, _MARKERS, strict=True)]
    featured = {name: style for name, style in zip(FEATURED, styles, strict=True) if name in methods}
    free = [style for style in styles if style not in featured.values()]
    others = sorted(methods - {*featured, BASE}) if len(methods) <= len(styles) else []
    hollow = {BASE: {"color": "black", "marker": "o", "markerfacecolor": "white"}} if BASE in methods else {}
    return hollow | featured | dict(zip(others, free, strict=False))


def _figure(width: int, height: float) -> Any:
    return require_matplotlib()(figsize=(width / _INCH, height), dpi=2 * _INCH, layout="constrained")


def _legend(figure: Any, coloured: Mapping[str, Mapping[str, Any]], width: int, limit: str, bar: bool) -> None:
    from matplotlib.lines import Line2D

    black = {"linestyle": "", "marker": "|", "markersize": 9, "markeredgewidth": 2} if bar else {"linestyle": "--"}
    plain = {"linestyle": "" if bar else "-", "markersize": 5}
    styles: dict[str, Mapping[str, Any]] = {limit: {"color": "black", **black}}
    styles |= {name: {**plain, **style} for name, style in coloured.items()}
    styles |= {"other methods": {"linestyle": "", "marker": ".", "color": "#bbbbbb"}} if bar else {}
    handles = [Line2D([], [], label=name, **style) for name, style in styles.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=2 if width < 600 else 5, frameon=False)
