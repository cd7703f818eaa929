"""The tables of the evidence from finished cells: scores, credit, diagnostics, the ledger, intervals and paired tests.

python evaluation/c3/table.py        # again from the committed results/cells.json, without training anything
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import figures
from experiment import ARMS, C3, ESTIMATOR_OF, EVENTS, METHODS
from finished_cells import Cell, read, save, write_again
from report import markdown

from hf_credit.diagnostics import pass_at_k_by_instance
from hf_credit.evaluation.statistics import (
    Interval,
    holm,
    mean_interval,
    paired_difference,
    permutation_test,
    stratified_paired_difference,
)

Cells = Mapping[str, Mapping[int, Cell]]
"""Finished cells by arm and seed."""

# Of each held-out or training task, a score; the ways to sum up a policy.
TASK_COLUMNS: Mapping[str, tuple[str, Callable[[Cell], list[float]]]] = {
    "held_out": ("expected score, held-out tasks", lambda cell: cell["scores"]["exact/held_out"]),
    "train": ("expected score, training tasks", lambda cell: cell["scores"]["exact/train"]),
    "greedy": ("greedy, held-out", lambda cell: pass_at_k_by_instance(cell["scores"]["greedy"], 1)),
    "pass@1": ("pass@1, held-out", lambda cell: pass_at_k_by_instance(cell["scores"]["drawn"], 1)),
    "pass@10": ("pass@10, held-out", lambda cell: pass_at_k_by_instance(cell["scores"]["drawn"], 10)),
}
# How fast training went: the mean reward over it, with scores or with tokens as time.
CURVES: Mapping[str, tuple[str, str]] = {
    "events": ("mean training score over scoring events", "budget/scoring_events"),
    "tokens": ("mean training score over equal tokens", "budget/tokens"),
}


def read_cells(paths: Iterable[Path]) -> Cells:
    """The cells in some files, of every arm."""
    return {**{arm: {} for arm in ARMS}, **read(paths, lambda cell: str(cell["arm"]))}


def seeds_of(cells: Cells) -> list[int]:
    """The seeds for which every arm is finished."""
    return sorted(set.intersection(*(set(cells[arm]) for arm in ARMS)))


def curve_mean(cell: Cell, axis: str, until: float) -> float:
    """The mean training score while `axis` runs from its first value to `until`, by the trapezoidal rule."""
    times, rewards = np.asarray(cell["curves"][axis]), np.asarray(cell["curves"]["reward"])
    inside = times < until
    x = np.append(times[inside], until)
    y = np.append(rewards[inside], np.interp(until, times, rewards))
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """C3 against another arm; positive differences are C3's.

    Attributes:
        column: what is compared.
        other: the arm.
        seeds: the mean difference over training seeds, which are the units.
        p, adjusted: the exact sign-flip test over seeds, and after Holm's correction within the family.
        tasks: the same mean with the tasks of each seed redrawn (Appendix G), where there are tasks.
        ahead: in how many of the seeds C3's number was the higher.
    """

    column: str
    other: str
    seeds: Interval
    p: float
    ahead: int
    tasks: Interval | None = None
    adjusted: float = float("nan")


def compare(column: str, other: str, a: Sequence[float], b: Sequence[float]) -> Comparison:
    """One number a seed of C3, and of another arm."""
    return Comparison(
        column=column,
        other=other,
        seeds=paired_difference(a, b),
        p=permutation_test(a, b).p_value,
        ahead=sum(x > y for x, y in zip(a, b, strict=True)),
    )


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of a family with Holm's adjusted p-values."""
    return [dataclasses.replace(c, adjusted=p) for c, p in zip(family, holm([c.p for c in family]), strict=True)]


def write(cells: Cells, folder: Path) -> None:
    """Writes `cells.json`, `results.json`, `results.md` and the plots.

    Raises:
        ValueError: fewer than two seeds of which every arm is finished.
    """
    seeds = seeds_of(cells)
    if len(seeds) < 2:
        raise ValueError(f"a comparison needs two seeds of which every arm is finished, got {seeds}; run more.")
    save((cells[arm][seed] for arm in ARMS for seed in sorted(cells[arm])), folder)

    scores = {arm: {name: _scores(cells, arm, seeds, get) for name, (_, get) in TASK_COLUMNS.items()} for arm in ARMS}
    speed = {arm: {name: _speeds(cells, arm, seeds, axis) for name, (_, axis) in CURVES.items()} for arm in METHODS}
    family = corrected([*_score_comparisons(scores), *_speed_comparisons(speed)])
    credit = {arm: _training_credit(cells, arm, seeds) for arm in METHODS}
    credit_family = corrected(_credit_comparisons(credit))
    results = {
        "seeds": seeds,
        "made_with": [
            dict(made) for made in sorted({tuple(cells[a][s]["made_with"].items()) for a in ARMS for s in seeds})
        ],
        "scores": {arm: {n: _summary([fmean(own) for own in v]) for n, v in scores[arm].items()} for arm in ARMS},
        "speed": {arm: {n: _summary(v) for n, v in speed[arm].items()} for arm in METHODS},
        "comparisons": [dataclasses.asdict(c) for c in family],
        "training_credit": {
            arm: {
                str(update): {e: {m: _summary(v) for m, v in by.items()} for e, by in events.items()}
                for update, events in zip(_updates(cells, seeds), credit[arm], strict=True)
            }
            for arm in METHODS
        },
        "credit_comparisons": [dataclasses.asdict(c) for c in credit_family],
        "diagnostics": {arm: _diagnostics(cells, arm, seeds) for arm in ARMS},
        "ledger": {arm: cells[arm][seeds[0]]["ledger"] for arm in METHODS},
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tasks, curves = ({name: label for name, (label, _) in column.items()} for column in (TASK_COLUMNS, CURVES))
    (folder / "results.md").write_text(markdown(results, tasks, curves), encoding="utf-8")
    figures.learning(cells, seeds, folder / "learning.png")
    figures.training_credit(results["training_credit"], folder / "training_credit.png")
    figures.diagnostics(results["diagnostics"], folder / "diagnostics.png")


# What is summed up -----------------------------------------------------------------------------------------------


def _scores(cells: Cells, arm: str, seeds: Sequence[int], get: Callable[[Cell], list[float]]) -> list[list[float]]:
    return [get(cells[arm][seed]) for seed in seeds]


def _speeds(cells: Cells, arm: str, seeds: Sequence[int], axis: str) -> list[float]:
    """Up to where the arm that used least of it stopped, so that all are compared over the same stretch."""
    return [
        curve_mean(cells[arm][seed], axis, min(cells[other][seed]["curves"][axis][-1] for other in METHODS))
        for seed in seeds
    ]


def _score_comparisons(scores: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> list[Comparison]:
    found = []
    for name in ("held_out", "train"):
        for other in (arm for arm in ARMS if arm != C3):
            a, b = scores[C3][name], scores[other][name]
            compared = compare(name, other, [fmean(own) for own in a], [fmean(own) for own in b])
            strata = [place for place, own in enumerate(a) for _ in own]
            over_tasks = stratified_paired_difference([*chain(*a)], [*chain(*b)], strata)
            found.append(dataclasses.replace(compared, tasks=over_tasks))
    return found


def _speed_comparisons(speed: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Comparison]:
    return [
        compare(name, other, speed[C3][name], speed[other][name])
        for name in CURVES
        for other in METHODS
        if other != C3
    ]


def _credit_comparisons(credit: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Comparison]:
    """At the first look, over the seeds where both have a number."""
    found = []
    for measure in ("fidelity", "squared_error"):
        for event in EVENTS:
            for other in (arm for arm in METHODS if arm != C3):
                pairs = zip(*(credit[arm][0][event][measure] for arm in (C3, other)), strict=True)
                known = [(a, b) for a, b in pairs if not np.isnan(a + b)]
                if len(known) > 1:
                    found.append(compare(f"{measure}/{event}", other, *zip(*known, strict=True)))
    return found


def _updates(cells: Cells, seeds: Sequence[int]) -> list[int]:
    return [look["update"] for look in cells[C3][seeds[0]]["training_credit"]]


def _training_credit(cells: Cells, arm: str, seeds: Sequence[int]) -> list[dict[str, dict[str, list[float]]]]:
    """Of each look at the credit of training, by event and measure, one number a seed."""
    looks = zip(*(cells[arm][seed]["training_credit"] for seed in seeds), strict=True)
    return [
        {
            event: {
                measure: [float("nan") if own[event][measure] is None else own[event][measure] for own in look]
                for measure in ("fidelity", "squared_error", "within_context_variance", "messages")
            }
            for event in EVENTS
        }
        for look in looks
    ]


def _diagnostics(cells: Cells, arm: str, seeds: Sequence[int]) -> dict[str, Any]:
    own = [cells[arm][seed]["diagnostics"] for seed in seeds]
    failures = Counter(name for found in own for name in found["failures"])
    return {
        "buckets": sum(found["buckets"] for found in own),
        "alone": sum(found["alone"] for found in own),
        "influence": _summary([found["influence"] for found in own]),
        "influence_by_chance": _summary([found["influence_by_chance"] for found in own]),
        "own": ESTIMATOR_OF[arm],
        "credit": {
            estimator: {name: _summary([found["credit"][estimator][name] for found in own]) for name in values}
            for estimator, values in own[0]["credit"].items()
        },
        "failures": {name: count / sum(failures.values()) for name, count in failures.most_common()},
    }


def _summary(values: Sequence[float | None]) -> dict[str, Any]:
    """The mean over seeds and its 95% interval; seeds without a number are left out and counted."""
    known = [value for value in values if value is not None and not np.isnan(value)]
    if len(known) < 2:
        return {"mean": known[0] if known else None, "low": None, "high": None, "n": len(known)}
    interval = mean_interval(known)
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}


def main(arguments: Sequence[str] | None = None) -> None:
    results = Path(__file__).resolve().parent / "results"
    write_again(__doc__, results, lambda paths, folder: write(read_cells(paths), folder), arguments)


if __name__ == "__main__":
    main()
