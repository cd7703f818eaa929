"""The plots of the evidence, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from drawing import legend, tidy
from experiment import BASE, C3, METHODS
from matplotlib.figure import Figure

from hf_credit.evaluation.plots import smoothed

# Apart for the colour-blind too.
COLOURS = {
    BASE: "#777777",
    "MAPPO": "#d55e00",
    "MAGRPO": "#009e73",
    C3: "#0072b2",
    "C3 with 4 plans": "#e69f00",
    "C3 without replay": "#cc79a7",
    "C3 without leave-one-out": "#56b4e9",
}


def learning(cells: Mapping[str, Any], seeds: Sequence[int], path: Path) -> None:
    """Training score against scoring events and against tokens: the mean over seeds, its least and greatest."""
    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    names = (("budget/scoring_events", "terminal scoring events"), ("budget/tokens", "tokens, given and generated"))
    for axis, (name, label) in zip(axes, names, strict=True):
        for arm in METHODS:
            curves = [cells[arm][seed]["curves"] for seed in seeds]
            rewards = np.array([smoothed(curve["reward"], 7) for curve in curves])
            times = np.mean([curve[name] for curve in curves], axis=0)
            axis.fill_between(times, rewards.min(axis=0), rewards.max(axis=0), color=COLOURS[arm], alpha=0.12, lw=0)
            axis.plot(times, rewards.mean(axis=0), color=COLOURS[arm], linewidth=2, label=arm, linestyle=_style(arm))
        tidy(axis, label, "mean score of an episode in training" if axis is axes[0] else "")
    legend(figure, axes[0])
    figure.savefig(path)


def training_credit(credit: Mapping[str, Any], path: Path) -> None:
    """Fidelity and squared error of the credit of training against exact advantages, and its variance, by update."""
    figure = Figure(figsize=(13, 6.6), dpi=120, layout="constrained")
    axes = figure.subplots(2, 3)
    panels = [("fidelity", event) for event in ("all", "reasoner", "actor")]
    panels += [("squared_error", "reasoner"), ("squared_error", "actor"), ("within_context_variance", "all")]
    for axis, (measure, event) in zip(axes.flat, panels, strict=True):
        for place, (arm, by_update) in enumerate(credit.items()):
            found = [(int(u) + 0.8 * place, values[event][measure]) for u, values in by_update.items()]
            known = [(update, value) for update, value in found if value["mean"] is not None]
            x, y = [update for update, _ in known], [value["mean"] for _, value in known]
            ends = [_ends(value) for _, value in known]
            spread = [[m - low for m, (low, _) in zip(y, ends, strict=True)]]
            spread += [[high - m for m, (_, high) in zip(y, ends, strict=True)]]
            axis.errorbar(x, y, spread, color=COLOURS[arm], marker="o", ms=4, label=arm, linestyle=_style(arm))
        tidy(axis, "update", f"{measure.replace('_', ' ')}, {event}")
    legend(figure, axes[0, 0])
    figure.savefig(path)


def diagnostics(found: Mapping[str, Any], path: Path) -> None:
    """Each policy's own credit on its own buckets: fidelity, variance within contexts, and influence (Figure 4)."""
    figure = Figure(figsize=(13, 3.6), dpi=120, layout="constrained")
    axes = figure.subplots(1, 4, sharey=True)
    panels = (
        ("fidelity to estimated values", lambda own: own["credit"][own["own"]]["fidelity/estimated"]),
        (
            "one replay, to exact values",
            lambda own: own["credit"][own["own"]]["fidelity/exact, one replay"],
        ),
        ("variance within contexts", lambda own: own["credit"][own["own"]]["variance/within"]),
        ("influence, nats (hollow: chance)", lambda own: own["influence"]),
    )
    for axis, (label, get) in zip(axes, panels, strict=True):
        for place, (arm, own) in enumerate(found.items()):
            _dot(axis, place, get(own), COLOURS[arm])
            if label.startswith("influence"):
                _dot(axis, place, own["influence_by_chance"], COLOURS[arm], hollow=True)
        tidy(axis, label, "")
    axes[0].set_yticks(range(len(found)), [f"{arm}, credit as {own['own']}'s" for arm, own in found.items()])
    axes[0].invert_yaxis()
    figure.savefig(path)


def _dot(axis: Any, place: int, value: Mapping[str, Any], colour: str, hollow: bool = False) -> None:
    if value["mean"] is None:
        return
    axis.plot(_ends(value), [place, place], color=colour, linewidth=2, alpha=0.4 if hollow else 1)
    axis.plot([value["mean"]], [place], "o", color=colour, markerfacecolor="white" if hollow else colour, markersize=8)


def _ends(value: Mapping[str, Any]) -> tuple[float, float]:
    if value["low"] is None:
        return value["mean"], value["mean"]
    return min(value["low"], value["mean"]), max(value["high"], value["mean"])


def _style(arm: str) -> str:
    return "--" if arm not in (BASE, "MAPPO", "MAGRPO", C3) else "-"
