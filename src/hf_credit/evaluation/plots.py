"""Learning curves as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_credit.evaluation.runs import Run
from hf_credit.files import replaced
from hf_credit.optional_packages import needed
from hf_credit.rollouts.metric_names import METRICS

LINES = "Thin lines: logged values. Thick lines: moving averages over a tenth of the updates."

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # distinct for colour-blind readers


def learning_curves(runs: Sequence[Run], path: str | Path) -> Path:
    """Plots logged quantities against the number of updates, with one panel per quantity.

    Thin lines are logged values, thick lines their moving averages over a tenth of the run. If outcomes equal
    successes, or verdicts equal valid actions, only one panel is drawn for both.

    Args:
        runs: at least one; each has its colour.
        path: the PNG file.

    Raises:
        ValueError: no run logged any of them.
        ImportError: matplotlib is missing.
    """
    figure_class = require_matplotlib()
    logged = {name for run in runs for entry in run.log for name in entry}
    known = {name: metric for name, metric in METRICS.items() if metric.panel}
    panels = {name: metric.label for name, metric in known.items() if name in logged}
    if not panels and "loss" in logged:  # of a warm-up
        panels = {"loss": "loss (nats per token)"}
    if not panels:
        raise ValueError(
            f"a learning curve needs one of {', '.join(known)} in the log, got "
            f"{', '.join(sorted(logged)) or 'nothing'}; log one of them."
        )
    for name, metric in known.items():
        if metric.equals and all(run.curve(name) == run.curve(metric.equals) for run in runs if run.curve(name)[0]):
            panels.pop(name, None)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = figure_class(figsize=(4.6 * columns, 3.3 * rows + 0.5), dpi=120, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, axis in zip(panels.items(), axes, strict=False):
        _draw(axis, runs, *panel)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    if len(runs) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(runs), frameon=False)
    figure.supxlabel(LINES, fontsize=9, color="#555555")
    return save(figure, path)


def _draw(axis: Any, runs: Sequence[Run], name: str, label: str) -> None:
    for number, run in enumerate(runs):
        steps, values = run.curve(name)
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
        axis.plot(steps, smoothed(values, max(1, len(values) // 10)), color=colour, linewidth=2, label=run.name)
    axis.set_xlabel("update")
    axis.set_ylabel(label)
    axis.set_xlim(left=0)
    if METRICS[name].panel and METRICS[name].share:  # the loss of a warm-up is not the share of lost games
        axis.set_ylim(-0.02, min(axis.get_ylim()[1], 1.02))
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """Returns the mean of each value and up to `window - 1` values before it."""
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [sum(part) / len(part) for part in parts]


def save(figure: Any, path: str | Path) -> Path:
    """Writes a figure to a PNG file, whole or not at all; returns its path."""
    with replaced(path) as unfinished:
        figure.savefig(unfinished)
    return Path(path)


def require_matplotlib() -> Any:
    """Returns the class of figures; called before a long computation, to check that matplotlib is installed."""
    # It draws without a display, and without pyplot's global state.
    return needed("learning curves need", "matplotlib.figure", "viz").Figure
