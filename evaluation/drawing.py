"""What the plots of all evidence have in common. Scripts of `evaluation/` import it."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure


def tidy(axis: Any, x: str, y: str) -> None:
    """Names the axes, and takes away what a plot does not need."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def legend(figure: Figure, axis: Any) -> None:
    """One legend above all panels, of what one of them holds."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
