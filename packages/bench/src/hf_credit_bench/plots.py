"""The picture of what pays in each field, for a wide page and for a phone, and the folder of pages with it."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from hf_credit.evaluation.plots import require_matplotlib, save
from hf_credit.files import write
from hf_credit_bench import cells as written
from hf_credit_bench.cells import LINES, Cells, Job
from hf_credit_bench.fields import FIELDS, of_settings
from hf_credit_bench.guide import NOTHING, fields_of, tables, which_method, write_parquet

_INCH = 100
"""Pixels of a page per inch of a plot, which has twice as many."""

WIDTHS = {"": 1000, "_narrow": 390}
"""The width in pixels of the page for each picture, by the ending of its file's name."""

MOST = 0.4
"""The gain with the darkest colour."""


def write_pages(folder: Path, jobs: Sequence[Job], critic: str, command: str | None, page: Path | None = None) -> str:
    """Writes the table of a folder's cells, the page of tables, and the guide to those of a run, with its picture.

    Args:
        jobs: those of a run.
        critic: of the run.
        command: that measured them; `None` for tables alone.
        page: a second place of the guide.

    Returns:
        The tables of the run's cells or, if there are many, where they are; empty if it has none.
    """
    known = written.read(folder / LINES)
    if not (of_run := [known[job.key] for job in jobs if job.key in known]):
        return ""
    every = list(known.values())
    write_parquet(every, folder / "cells.parquet")
    write(folder / "tables.md", tables(every))
    if command is not None:
        shown = of_settings(every, critic, jobs[0].updates)
        drawn = draw(shown, folder)
        write(folder / "index.md", which_method(shown, command, "" if drawn else None))
        if page is not None:
            place = f"{os.path.relpath(folder, page.parent)}/"
            write(page, which_method(shown, command, place if drawn else None))
    return tables(of_run) if len(of_run) <= 8 else f"{len(of_run)} cells are in {folder}; read {folder / 'tables.md'}."


def draw(cells: Cells, folder: Path) -> list[Path]:
    """Draws what pays in each field, for each of `WIDTHS`, if the cells have any; returns the files."""
    import matplotlib

    if not fields_of(cells):
        return []
    files = []
    for ending, width in WIDTHS.items():
        with matplotlib.rc_context({"font.size": 6 if width < 600 else 9}):
            files.append(fields(cells, folder / f"fields{ending}.png", width))
    return files


def fields(cells: Cells, path: Path, width: int) -> Path:
    """Draws a tile for each field, below what a user has: the method that pays and its gain, the darker the more.

    Args:
        cells: with learning.
        width: of the page, in pixels.
    """
    from matplotlib.patches import Rectangle

    rows = fields_of(cells)
    figure = require_matplotlib()(figsize=(width / _INCH, 0.62 * len(rows) + 0.6), dpi=2 * _INCH, layout="constrained")
    axis = figure.subplots()
    for place, (words, row) in enumerate(rows.items()):
        axis.text(-0.48, place - 0.425, words, va="center", fontweight="bold")
        for column, one in enumerate(row):
            share = 0.0 if isinstance(one, str) else min(one[1].mean / MOST, 1.0)
            colour = "#d9d9d9" if one == NOTHING else (1 - 0.95 * share, 1 - 0.55 * share, 1 - 0.3 * share)
            axis.add_patch(Rectangle((column - 0.48, place - 0.32), 0.96, 0.74, facecolor=colour, edgecolor="#cccccc"))
            name = one if isinstance(one, str) else one[0].replace("_", "_ ")
            said = textwrap.fill(name, 14 if width < 600 else 30).replace("_ ", "_")
            said += "" if isinstance(one, str) else f"\n{one[1].mean:+.2f}"
            ink = "white" if share > 0.6 else "#777777" if isinstance(one, str) else "black"
            axis.text(column, place + 0.05, said, ha="center", va="center", color=ink)
    axis.set_xlim(-0.5, len(FIELDS) - 0.5)
    axis.set_ylim(len(rows) - 0.5, -0.65)
    axis.set_xticks(
        range(len(FIELDS)), [f"{length} decisions\n{100 * success:g} % success" for length, success in FIELDS]
    )
    axis.xaxis.tick_top()
    axis.set_yticks([])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return save(figure, path)
