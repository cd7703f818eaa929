"""The plots of the evidence, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cells
from drawing import legend, tidy
from experiment import BASE, METHODS, Experiment, Game, ablation_arm
from matplotlib.figure import Figure

from hf_credit.evaluation.plots import smoothed
from hf_credit.evaluation.statistics import mean_interval
from hf_credit.rollouts.metric_names import label

COLOURS = {BASE: "#777777", "OR": "#d55e00", "MC-PR": "#009e73", "VPR": "#0072b2"}  # apart for the colour-blind too
TITLES = {"tic_tac_toe": "Tic-Tac-Toe", "sudoku": "Sudoku", "minesweeper": "Minesweeper"}

Seeds = Mapping[str, Sequence[int]]
"""The seeds of each game that are finished."""


def learning_curves(experiment: Experiment, cells: Cells, seeds: Seeds, path: Path) -> None:
    """Mean outcome and share of oracle-valid actions in training: the mean over seeds, and its least and greatest."""
    games = experiment.games
    figure = Figure(figsize=(4.4 * len(games), 6.4), dpi=120, layout="constrained")
    axes = figure.subplots(2, len(games), squeeze=False, sharex="col")
    for name, line in zip(("reward", "oracle/valid"), axes, strict=True):
        for game, axis in zip(games, line, strict=True):
            for arm in METHODS:
                found = cells.find(game.name, arm)
                curves = np.array([_smooth(found[seed]["curves"][name]) for seed in seeds[game.name]])
                steps = np.arange(1, curves.shape[1] + 1)
                axis.fill_between(steps, curves.min(axis=0), curves.max(axis=0), color=COLOURS[arm], alpha=0.15, lw=0)
                axis.plot(steps, curves.mean(axis=0), color=COLOURS[arm], linewidth=2, label=arm)
            axis.set_title(TITLES.get(game.name, game.name) if name == "reward" else "")
            tidy(axis, "update" if name != "reward" else "", label(name))
    legend(figure, axes[0, 0])
    figure.savefig(path)


def table(experiment: Experiment, cells: Cells, seeds: Seeds, path: Path) -> None:
    """Each column of Table 1: every seed as a dot, the mean over seeds with its 95% interval."""
    panels = [(game, column) for game in experiment.games for column in game.columns]
    figure = Figure(figsize=(2.9 * len(panels) / 2 + 0.6, 6.4), dpi=120, layout="constrained")
    axes = figure.subplots(2, -(-len(panels) // 2), squeeze=False).flatten("F")
    arms = [BASE, *METHODS]
    for (game, column), axis in zip(panels, axes, strict=False):
        for place, arm in enumerate(arms):
            _dots(axis, place, cells.means(game.name, arm, column, seeds[game.name]), COLOURS[arm])
        axis.set_xticks(range(len(arms)), arms, rotation=30)
        axis.set_title(TITLES.get(game.name, game.name))
        tidy(axis, "", label(column))
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.savefig(path)


def ablation(games: Sequence[Game], cells: Cells, seeds: Seeds, path: Path) -> None:
    """The columns of Table 1 against the number of simulations of the oracle that trained."""
    panels = [(game, name) for game in games for name in (*game.columns, "oracle/valid")]
    figure = Figure(figsize=(4.2 * len(panels), 3.8), dpi=120, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for (game, name), axis in zip(panels, axes, strict=True):
        arms = [BASE, *map(ablation_arm, game.simulations), "VPR"]
        for place, arm in enumerate(arms):
            colour = COLOURS.get(arm, "#56b4e9")
            _dots(axis, place, cells.means(game.name, arm, name, seeds[game.name]), colour)
        labels = ["untrained", *(f"{n:,}" for n in game.simulations), "exact"]
        axis.set_xticks(range(len(arms)), labels, rotation=30)
        axis.set_title(TITLES.get(game.name, game.name))
        tidy(axis, "simulations of the oracle", label(name))
    figure.savefig(path)


def _dots(axis: Any, place: int, values: Sequence[float], colour: str) -> None:
    interval = mean_interval(values)
    axis.plot([place] * len(values), values, "o", color=colour, alpha=0.35, markersize=4)
    axis.plot([place, place], [interval.low, interval.high], color=colour, linewidth=2)
    axis.plot([place - 0.2, place + 0.2], [interval.mean] * 2, color=colour, linewidth=3)


def _smooth(values: Sequence[float]) -> list[float]:
    return smoothed(values, max(1, len(values) // 8))
