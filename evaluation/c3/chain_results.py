"""The tables and plots of the chains from finished cells.

python evaluation/c3/chain_results.py        # again from the committed results/chain/cells.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from drawing import legend, tidy
from finished_cells import Cell, load, save, write_again
from matplotlib.figure import Figure
from table import compare, corrected, curve_mean

from hf_credit.evaluation.report import table
from hf_credit.evaluation.statistics import mean_interval

CRITIC, MAGRPO, C3, TREE = "MAPPO, exact critic", "MAGRPO", "C3", "C3 as a tree"
CREDIT, TRAINING = "credit", "training"  # the kinds of a cell
COLOURS = {CRITIC: "#d55e00", MAGRPO: "#009e73", C3: "#0072b2", TREE: "#56b4e9"}

# What is compared, by the kind of the cell, and what people call it.
MEASURES: Mapping[str, Mapping[str, str]] = {
    CREDIT: {
        "cosine": "cosine with the exact gradient",
        "cosine/tokens": "at equal tokens",
        "cosine/first": "first speaker's",
        "cosine/last": "last speaker's",
        "fidelity": "fidelity",
        "fidelity/first": "first speaker's",
        "fidelity/last": "last speaker's",
        "squared_error": "squared error",
        "squared_error/first": "first speaker's",
        "squared_error/last": "last speaker's",
    },
    TRAINING: {
        "events": "mean score over scoring events",
        "tokens": "mean score over equal tokens",
        "end": "score at the end",
    },
}
TESTED = {CREDIT: ("cosine", "cosine/tokens", "fidelity", "squared_error"), TRAINING: ("events", "tokens", "end")}

Setting = tuple[int, float]  # speakers and noise
Numbers = Mapping[str, Mapping[Setting, Mapping[str, Mapping[str, Sequence[float]]]]]
"""By kind, setting, arm and measure, one number a seed."""


def arms_of(speakers: int) -> tuple[str, ...]:
    """The arms at a length; a full tree fits the budget up to three speakers."""
    return (CRITIC, MAGRPO, C3, TREE) if speakers < 4 else (CRITIC, MAGRPO, C3)


def read_cells(paths: Iterable[Path]) -> list[Cell]:
    """The cells in some files, in the order of the tables."""
    return sorted(load(paths), key=lambda c: (c["kind"], c["speakers"], c["noise"], c["arm"], c["seed"]))


def best_score(size: int, speakers: int, noise: float) -> float:
    """The best expected score: right is who is right all the way, or by chance."""
    return 1 / size + (1 - 1 / size) * (1 - noise) ** (speakers - 1)


def numbers_of(cells: Sequence[Mapping[str, Any]]) -> tuple[list[int], Numbers]:
    """The seeds of which every cell is there, and what each measure came to.

    Scores are compared over equal tokens up to where the arm that took fewest stopped.
    """
    by: dict[tuple[str, Setting, str], dict[int, Mapping[str, Any]]] = {}
    for cell in cells:
        key = (cell["kind"], (cell["speakers"], cell["noise"]), cell["arm"])
        by.setdefault(key, {})[cell["seed"]] = cell
    seeds = sorted(set.intersection(*(set(own) for own in by.values())))
    least: dict[tuple[Setting, int], float] = {}
    for (kind, setting, _), own in by.items():
        for seed in seeds if kind == TRAINING else ():
            spent = own[seed]["curves"]["budget/tokens"][-1]
            least[setting, seed] = min(least.get((setting, seed), spent), spent)
    found: dict[str, dict[Setting, dict[str, dict[str, list[float]]]]] = {}
    for (kind, setting, arm), own in by.items():
        values: dict[str, list[float]] = {}
        for seed in seeds:
            for name, value in _measures(own[seed], least.get((setting, seed), 0)).items():
                values.setdefault(name, []).append(value)
        found.setdefault(kind, {}).setdefault(setting, {})[arm] = values
    return seeds, found


def _measures(cell: Mapping[str, Any], tokens: float) -> dict[str, float]:
    if cell["kind"] == CREDIT:
        return {name: cell[name] for name in (*MEASURES[CREDIT], "credited", "tokens")}
    events = "budget/scoring_events"
    return {
        "events": curve_mean(cell, events, cell["curves"][events][-1]),
        "tokens": curve_mean(cell, "budget/tokens", tokens),
        "end": cell["curves"]["reward"][-1],
        "start": cell["curves"]["reward"][0],
        "spent": cell["curves"]["budget/tokens"][-1],
    }


def comparisons(numbers: Numbers) -> list[dict[str, Any]]:
    """C3, drawn and as a tree, against each other arm. A measure and an opponent make a family of Holm's."""
    found = []
    for kind, settings in numbers.items():
        for name in TESTED[kind]:
            for other in (MAGRPO, CRITIC):
                pairs = [
                    (setting, arm, compare(name, other, own[arm][name], own[other][name]))
                    for setting, own in settings.items()
                    for arm in (C3, TREE)
                    if arm in own
                ]
                family = corrected([one for _, _, one in pairs])
                for (setting, arm, _), one in zip(pairs, family, strict=True):
                    about = {"kind": kind, "speakers": setting[0], "noise": setting[1], "arm": arm}
                    found.append({**about, **dataclasses.asdict(one)})
    return found


def write(cells: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Writes `cells.json`, `results.json`, `results.md` and the plots.

    Raises:
        ValueError: fewer than two seeds of which every cell is finished.
    """
    seeds, numbers = numbers_of(cells)
    if len(seeds) < 2:
        raise ValueError(f"a comparison needs two seeds of which every cell is finished, got {seeds}; run more.")
    save(cells, folder)
    results = {
        "seeds": seeds,
        "size": cells[0]["size"],
        "made_with": [dict(made) for made in sorted({tuple(cell["made_with"].items()) for cell in cells})],
        "cpu_minutes": round(sum(cell["cpu_seconds"] for cell in cells) / 60, 1),
        "means": [
            {"kind": kind, "speakers": setting[0], "noise": setting[1], "arm": arm, **_summaries(values)}
            for kind, settings in numbers.items()
            for setting, arms in settings.items()
            for arm, values in arms.items()
        ],
        "comparisons": comparisons(numbers),
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(markdown(results), encoding="utf-8")
    draw(results["means"], CREDIT, TESTED[CREDIT], folder / "credit.png")
    if TRAINING in numbers:
        draw(_beyond(results["comparisons"]), TRAINING, ("events", "tokens"), folder / "training.png")


def write_rates(work: Path, folder: Path) -> None:
    """Writes `rates.json`: of every arm and length, the mean score over training with each rate that was tried."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for tried in sorted(path for path in work.iterdir() if path.is_dir()):
        _, numbers = numbers_of(read_cells((tried / "cells").glob("*.json")))
        for (speakers, _), arms in numbers[TRAINING].items():
            for arm, values in arms.items():
                found.setdefault(arm, {}).setdefault(speakers, {})[tried.name] = round(fmean(values["events"]), 4)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rates.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _summaries(values: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The mean over seeds of each measure, and its 95% interval (Student's t)."""
    return {name: dataclasses.asdict(mean_interval(own)) for name, own in values.items()}


def _beyond(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The differences from MAGRPO, as `draw` wants them."""
    of_arm: dict[tuple[int, float, str], dict[str, Any]] = {}
    for one in found:
        if one["kind"] == TRAINING and one["other"] == MAGRPO:
            of_arm.setdefault((one["speakers"], one["noise"], one["arm"]), {})[one["column"]] = one["seeds"]
    return [
        {"kind": TRAINING, "speakers": speakers, "noise": noise, "arm": arm, **values}
        for (speakers, noise, arm), values in of_arm.items()
    ]


def markdown(results: Mapping[str, Any]) -> str:
    """The tables of `results.md`."""
    parts = [
        "# Chains",
        "",
        "Written by `evaluation/c3/chain_results.py`; do not edit. How to read it: `../../README.md`.",
        "",
        f"Means over the seeds {', '.join(map(str, results['seeds']))} with 95% intervals over seeds (Student's t).",
        f"{results['cpu_minutes']} minutes of one processor core.",
        "",
        "## The credit of the starting policies",
        "",
        _means(results, CREDIT, {**MEASURES[CREDIT], "credited": "messages credited", "tokens": "tokens"}),
        "",
    ]
    if any(one["kind"] == TRAINING for one in results["means"]):
        names = {"start": "score at the start", **MEASURES[TRAINING], "spent": "tokens"}
        parts += ["## Training", "", _means(results, TRAINING, names), ""]
    parts += ["## C3 against the others", "", "A measure and an opponent make a family of Holm's correction.", ""]
    for kind, names in TESTED.items():
        for name in names:
            own = [one for one in results["comparisons"] if (one["kind"], one["column"]) == (kind, name)]
            parts += [f"### {_called(kind, name).capitalize()}", "", _comparisons(own), ""] if own else []
    return "\n".join(parts)


def _called(kind: str, name: str) -> str:
    """What people call a measure where no table head stands next to it."""
    first, _, rest = name.partition("/")
    return MEASURES[kind][name] if not rest else f"{MEASURES[kind][first]}, {MEASURES[kind][name]}"


def _means(results: Mapping[str, Any], kind: str, names: Mapping[str, str]) -> str:
    own = [one for one in results["means"] if one["kind"] == kind]
    head = ["speakers", "noise", *(["best score"] if kind == TRAINING else []), "method", *names.values()]
    rows = []
    for one in own:
        best = best_score(results["size"], one["speakers"], one["noise"])
        shown = [_shown(one[name], whole=name in ("credited", "spent") or one[name]["mean"] > 2) for name in names]
        of_setting = [str(one["speakers"]), f"{one['noise']:g}", *([f"{best:.3f}"] if kind == TRAINING else [])]
        rows.append([*of_setting, one["arm"], *shown])
    return table(head, rows)


def _comparisons(own: Sequence[Mapping[str, Any]]) -> str:
    head = ["speakers", "noise", "difference", "mean [over seeds]", "higher", "p", "Holm"]
    rows = [
        [
            str(one["speakers"]),
            f"{one['noise']:g}",
            f"{one['arm']} - {one['other']}",
            _shown(one["seeds"]),
            f"{one['ahead']} of {one['seeds']['n']}",
            f"{one['p']:.2g}",
            f"{one['adjusted']:.2g}",
        ]
        for one in own
    ]
    return table(head, rows)


def _shown(interval: Mapping[str, Any], whole: bool = False) -> str:
    if whole:
        return f"{interval['mean']:,.0f}"
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def draw(means: Sequence[Mapping[str, Any]], kind: str, names: Sequence[str], path: Path) -> None:
    """A row of panels for each measure, one for each noise: the mean over seeds and its interval, by length."""
    own = [one for one in means if one["kind"] == kind]
    noises = sorted({one["noise"] for one in own})
    figure = Figure(figsize=(3.6 * len(noises), 2.7 * len(names)), dpi=120, layout="constrained")
    axes = figure.subplots(len(names), len(noises), sharex=True, sharey="row", squeeze=False)
    for name, row in zip(names, axes, strict=True):
        for noise, axis in zip(noises, row, strict=True):
            for place, (arm, colour) in enumerate(COLOURS.items()):
                points = [one for one in own if (one["noise"], one["arm"]) == (noise, arm)]
                if not points:
                    continue
                x = [one["speakers"] + 0.06 * (place - 1.5) for one in points]
                y = [one[name]["mean"] for one in points]
                ends = [[m - one[name]["low"] for m, one in zip(y, points, strict=True)]]
                ends += [[one[name]["high"] - m for m, one in zip(y, points, strict=True)]]
                axis.errorbar(x, y, ends, color=colour, marker="o", ms=4, label=arm)
            if kind == TRAINING:
                axis.axhline(0, color="#777777", linewidth=1)
            label = _called(kind, name) + (", beyond MAGRPO" if kind == TRAINING else "")
            tidy(axis, "speakers" if name == names[-1] else "", fill(label, 26) if noise == noises[0] else "")
            if name == names[0]:
                axis.set_title(f"noise {noise:g}", fontsize=10)
            axis.set_xticks(sorted({one["speakers"] for one in own}))
    legend(figure, axes[0, 0])
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    results = Path(__file__).resolve().parent / "results" / "chain"
    write_again(__doc__, results, lambda paths, folder: write(read_cells(paths), folder), arguments, "chain.py")


if __name__ == "__main__":
    main()
