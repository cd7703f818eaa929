"""The plots of the page, whose labels are plain text whatever an entry is called."""

from __future__ import annotations

from typing import Any

from hf_credit.evaluation.episode_page import written_out
from hf_credit.hub.leaderboard.results import Comparison, Results

_WIDTH = 5.0  # inches: its text can still be read where a phone shows it at half its size


def difference_plot(comparison: Comparison, a: str, b: str) -> Any:
    """The difference on each task, in order, with its mean and interval."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, 2.6), dpi=160, layout="constrained")
    axis = figure.subplots()
    ordered = sorted(comparison.differences)
    colours = ["#0072b2" if value > 0 else "#d55e00" if value < 0 else "#999999" for value in ordered]
    axis.bar(range(len(ordered)), ordered, width=0.9, color=colours)
    axis.axhline(0, color="#666666", linewidth=0.8)
    axis.axhspan(comparison.difference.low, comparison.difference.high, color="#009e73", alpha=0.2)
    axis.axhline(comparison.difference.mean, color="#009e73", linewidth=1.5, label="mean, 95 % interval")
    axis.tick_params(labelsize=8)
    axis.set_xlabel("secret tasks, in order of the difference", fontsize=8)
    axis.set_ylabel("A - B", fontsize=8)
    axis.set_title(f"A: {plot_text(a)}    B: {plot_text(b)}", fontsize=9)
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    return figure


def rank_plot(results: Results, board: str, what: str = "mean on the secret tasks", most: int = 20) -> Any:
    """The means of the best entries of a board with their intervals; `None` where none is ranked."""
    from matplotlib.figure import Figure

    ranked = results.ranks(board)[:most]
    if not ranked:
        return None
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.3 * len(ranked)), dpi=160, layout="constrained")
    axis = figure.subplots()
    for place, one in enumerate(ranked):
        axis.plot([one.score.low, one.score.high], [place, place], color="#0072b2", linewidth=2)
        axis.plot([one.score.mean], [place], "o", color="#0072b2")
    named = [results.row(one.entry).entry.name for one in ranked]
    texts = [f"{plot_text(name, 20)}  [{one.rank}]" for name, one in zip(named, ranked, strict=True)]
    axis.set_yticks(range(len(ranked)), texts, fontsize=8)
    axis.set_ylim(len(ranked) - 0.5, -0.5)  # the best on top, with room beside the first and the last
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlabel(f"{what}, 95 % interval; [rank]", fontsize=8)
    return figure


def plot_text(text: str, most: int = 40) -> str:
    """A name as a label of a plot, in which no $ begins mathematics."""
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return written_out(shown).replace("\\", "\\\\").replace("$", r"\$")
