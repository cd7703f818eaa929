"""Plots diagnoses in one PNG file, with a row of panels per event type (paper C3, figure 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, cycle
from pathlib import Path
from typing import Any

from hf_credit.diagnostics.bucket_credit import assigned_credit, credit_and_targets
from hf_credit.diagnostics.diagnosis import ALL, TRUTHS, Diagnosis, EventDiagnosis
from hf_credit.diagnostics.taxonomy import Failure
from hf_credit.diagnostics.verdicts import VerdictDiagnosis
from hf_credit.evaluation.plots import COLOURS, require_matplotlib, save

_CATEGORIES = dict(zip(Failure, ("#009e73", "#d55e00", "#999999", "#cc79a7", "#0072b2", "#dddddd"), strict=True))
_RAW = ("replay_loo", "magrpo", "mappo")  # their credit is in the unit of the reward
_SLANTED: Mapping[str, Any] = {"rotation": 15, "ha": "right", "rotation_mode": "anchor"}  # for long names


def draw(diagnoses: Sequence[Diagnosis], path: str | Path) -> Path:
    """Plots credit against target, fidelity, variance, influence and failures; NaN is omitted.

    Args:
        diagnoses: at least one.

    Raises:
        ImportError: matplotlib is missing.
    """
    events = [name for name in dict.fromkeys(event.event for one in diagnoses for event in one.events) if name != ALL]
    answered = any(own.influence is not None for one in diagnoses for own in one.events)
    columns = 5 if answered else 4
    figure = require_matplotlib()(figsize=(4.2 * columns, 3.8 * len(events)), dpi=100, layout="constrained")
    rows = figure.subplots(len(events), columns, squeeze=False)
    for event, axes in zip(events, rows, strict=True):
        found = {_label(one.name): own for one in diagnoses for own in one.events if own.event == event}
        _scatter(axes[0], diagnoses[0], event)
        credits = {name: own.credits for name, own in found.items()}
        known = {kind for own in credits.values() for credit in own for kind in credit.fidelity}
        kind = next((kind for kind in ("exact", "apart") if kind in known), "shared")
        fidelities = {name: {one.method: one.fidelity.get(kind) for one in own} for name, own in credits.items()}
        _bars(axes[1], "credit fidelity", fidelities)
        axes[1].set_title(f"target: {TRUTHS[kind]}", fontsize="medium")
        spread = {
            name: {one.method: one.variance.within for one in own if one.method in _RAW}
            for name, own in credits.items()
        }
        _bars(axes[2], "within-context variance", spread)
        _failures(axes[3], found)
        if answered:
            influences = {
                name: {"influence": own.influence_interval, "by chance": own.chance}
                for name, own in found.items()
                if own.influence is not None
            }
            _bars(axes[4], "influence (nats)", influences)
            axes[4].set_visible(bool(influences))
        axes[0].set_ylabel(f"{_label(event)}\n{axes[0].get_ylabel()}")
        for axis in axes:
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def draw_reliability(found: Sequence[VerdictDiagnosis], path: str | Path) -> Path:
    """Plots the share of right moves by their scores, which equals the score of a calibrated oracle."""
    axis = (figure := require_matplotlib()(figsize=(4.6, 3.8), dpi=100, layout="constrained")).subplots()
    axis.axline((0, 0), slope=1, color="black", linewidth=0.6)
    for one, colour in zip(found, cycle(COLOURS)):
        scores, shares, _ = zip(*one.reliability, strict=True)
        axis.plot(scores, [own.mean for own in shares], "o-", color=colour, label=_label(one.name))
        axis.vlines(scores, [own.low for own in shares], [own.high for own in shares], color=colour)
    axis.set(xlabel="score", ylabel="share of right moves", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axis.legend(fontsize="x-small")
    return save(figure, path)


def _label(name: str) -> str:
    """Escapes characters that a font may lack, and those that start mathematics in matplotlib."""
    return name.encode("unicode_escape").decode("ascii").replace("$", r"\$")


def _scatter(axis: Any, one: Diagnosis, event: str) -> None:
    """Plots C3's credit of the candidates against their exact targets, or estimated ones if there are none."""
    buckets = [bucket for bucket in one.buckets if bucket.event == event]
    exact = any(bucket.exact is not None for bucket in buckets)
    compared = [bucket for bucket in buckets if len(bucket.replayed) > 1]
    credit = assigned_credit(compared, "replay_loo")
    credits, targets = credit_and_targets(compared, credit, "exact" if exact else "estimated")
    axis.scatter([*chain(*targets)], [*chain(*credits)], s=12, alpha=0.4, color=COLOURS[0])
    axis.set_xlabel(f"target advantage ({'exact' if exact else 'estimated from the same returns'})")
    axis.set_ylabel("C3's credit")
    axis.set_title(_label(one.name), fontsize="medium")


def _failures(axis: Any, found: Mapping[str, EventDiagnosis]) -> None:
    names, bottom = list(found), [0.0] * len(found)
    for failure in Failure:
        heights = [own.failures.get(failure, 0) / own.buckets for own in found.values()]
        if any(heights):
            axis.bar(names, heights, bottom=bottom, color=_CATEGORIES[failure], label=str(failure))
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axis.set_ylabel("share of buckets")
    axis.set_ylim(0, 1)
    axis.set_xticks(range(len(names)), names, **_SLANTED)
    axis.legend(fontsize="x-small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # next to the bars


def _bars(axis: Any, measure: str, values: Mapping[str, Mapping[str, Any]]) -> None:
    """Draws a group of bars per inner name, with a bar per policy, and whiskers for intervals."""
    axis.set_ylabel(measure)
    groups = list(dict.fromkeys(group for own in values.values() for group in own))
    width = 0.8 / max(1, len(values))
    for number, (policy, own) in enumerate(values.items()):
        for place, group in enumerate(groups):
            value = own.get(group)
            mean = value if isinstance(value, float) else getattr(value, "mean", math.nan)
            if math.isnan(mean):
                continue
            where = place + (number - (len(values) - 1) / 2) * width
            label = policy if place == 0 else None
            axis.bar(where, mean, width * 0.9, color=COLOURS[number % len(COLOURS)], label=label)
            low, high = getattr(value, "low", math.nan), getattr(value, "high", math.nan)
            if not math.isnan(low):
                axis.vlines(where, low, high, color="black", linewidth=1)
    axis.set_xticks(range(len(groups)), groups, **_SLANTED)
    axis.axhline(0, color="black", linewidth=0.6)
    if len(values) > 1 and axis.get_legend_handles_labels()[0]:
        axis.margins(y=0.2)
        axis.legend(fontsize="x-small", loc="upper left")
