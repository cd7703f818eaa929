"""Table 1 and the ablation of the oracle from finished cells: intervals, paired tests, plots.

python evaluation/vpr/table.py        # again from the committed results/cells.json, without training anything
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import figures
from cells import Cells, mean, read_cells
from experiment import BASE, EXPERIMENT, METHODS, Experiment, Game, ablation_arm
from finished_cells import save, write_again

from hf_credit.evaluation.statistics import (
    Interval,
    holm,
    mean_interval,
    paired_difference,
    permutation_test,
    stratified_paired_difference,
)
from hf_credit.rollouts.metric_names import label

CREDITED = "VPR"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """VPR, or VPR with some oracle, against another arm on one column of one game.

    Attributes:
        game, column, a, b: what is compared; positive differences favour `a`.
        seeds: the mean of a - b over training seeds. Its units are runs, so it is about the method.
        seeds_p, seeds_holm: the exact sign-flip test over seeds, and after Holm's correction within the family.
        tasks: the same mean, tasks redrawn within each seed. It is about these trained policies only.
        tasks_p, tasks_holm: the sign-flip test over all (seed, task) pairs, likewise.
        ahead: in how many of the seeds a was better.
    """

    game: str
    column: str
    a: str
    b: str
    seeds: Interval
    seeds_p: float
    tasks: Interval
    tasks_p: float
    ahead: int
    seeds_holm: float = float("nan")
    tasks_holm: float = float("nan")


def compare(cells: Cells, game: str, column: str, a: str, b: str, seeds: Sequence[int]) -> Comparison:
    """a against b, on the same seeds and tasks."""
    first, second = cells.means(game, a, column, seeds), cells.means(game, b, column, seeds)
    pairs = [
        (seed, x, y)
        for seed in seeds
        for x, y in zip(*(cells.find(game, arm)[seed]["scores"][column] for arm in (a, b)), strict=True)
        if x is not None and y is not None
    ]
    strata, xs, ys = zip(*pairs, strict=True)
    return Comparison(
        game=game,
        column=column,
        a=a,
        b=b,
        seeds=paired_difference(first, second),
        seeds_p=permutation_test(first, second).p_value,
        tasks=stratified_paired_difference(xs, ys, strata),
        tasks_p=permutation_test(xs, ys).p_value,
        ahead=sum(x > y for x, y in zip(first, second, strict=True)),
    )


def corrected(family: list[Comparison]) -> list[Comparison]:
    """The comparisons of a family with Holm's adjusted p-values."""
    seeds, tasks = holm([c.seeds_p for c in family]), holm([c.tasks_p for c in family])
    return [dataclasses.replace(c, seeds_holm=s, tasks_holm=t) for c, s, t in zip(family, seeds, tasks, strict=True)]


def write(experiment: Experiment, cells: Cells, folder: Path) -> None:
    """Writes `cells.json`, `results.json`, `results.md` and the plots.

    Raises:
        ValueError: a game has fewer than two seeds of which every method is finished.
    """
    save(cells.cells, folder)
    arms = [BASE, *METHODS]
    seeds = {game.name: cells.seeds(game.name, arms) for game in experiment.games}
    for name, found in seeds.items():
        if len(found) < 2:
            raise ValueError(
                f"a comparison needs two seeds of which every method is finished, got {found} for {name!r}; run more."
            )
    main = corrected(
        [
            compare(cells, game.name, column, CREDITED, other, seeds[game.name])
            for game in experiment.games
            for column in game.columns
            for other in arms
            if other != CREDITED
        ]
    )
    ablated = [game for game in experiment.games if game.simulations]
    ablation_seeds = {game.name: cells.seeds(game.name, (*arms, *game.arms)) for game in ablated}
    ablated = [game for game in ablated if len(ablation_seeds[game.name]) >= 2]
    ablation = [
        compare(cells, game.name, column, ablation_arm(simulations), other, ablation_seeds[game.name])
        for game in ablated
        for column in game.columns
        for simulations in game.simulations
        for other in (BASE, CREDITED)
    ]
    ablation = corrected(ablation) if ablation else []

    figures.learning_curves(experiment, cells, seeds, folder / "learning_curves.png")
    figures.table(experiment, cells, seeds, folder / "table1.png")
    if ablated:
        figures.ablation(ablated, cells, ablation_seeds, folder / "ablation.png")
    rows = {
        "made_with": [dict(made) for made in sorted({tuple(cell["made_with"].items()) for cell in cells.cells})],
        "means": [
            _row(cells, game, arm, found)
            for game in experiment.games
            for arm, found in [
                *((arm, seeds[game.name]) for arm in arms),
                *((ablation_arm(n), ablation_seeds[game.name]) for n in game.simulations if game in ablated),
            ]
        ],
        "comparisons": [dataclasses.asdict(c) for c in main],
        "ablation": [dataclasses.asdict(c) for c in ablation],
    }
    (folder / "results.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    text = _markdown(experiment, rows["means"], main, ablation, seeds)
    (folder / "results.md").write_text(text, encoding="utf-8")


def _row(cells: Cells, game: Game, arm: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The means of an arm with their intervals over seeds, and what it cost."""
    names = (*game.columns, "oracle/valid", "endings/invalid_action")
    found = [cells.find(game.name, arm)[seed] for seed in seeds]
    row: dict[str, Any] = {"game": game.name, "arm": arm, "seeds": list(seeds)}
    row["scores"] = {n: dataclasses.asdict(mean_interval(cells.means(game.name, arm, n, seeds))) for n in names}
    if arm != BASE:
        row["updates"], row["episodes"] = found[0]["updates"], found[0]["episodes"]
        row["training_tokens"] = mean([cell["tokens"]["training"] for cell in found])
        row["value_rollout_tokens"] = mean([cell["tokens"]["value_rollouts"] for cell in found])
    row["training_cpu_seconds"] = mean([cell["cpu_seconds"]["training"] for cell in found])
    return row


def _markdown(
    experiment: Experiment,
    rows: Sequence[Mapping[str, Any]],
    main: Sequence[Comparison],
    ablation: Sequence[Comparison],
    seeds: Mapping[str, Sequence[int]],
) -> str:
    parts = ["# Results", "", "Written by `evaluation/vpr/table.py`; do not edit. How to read it: `../README.md`.", ""]
    parts += ["## Table 1: held-out tasks", ""]
    parts += [f"- {game.name}: seeds {', '.join(map(str, seeds[game.name]))}" for game in experiment.games]
    parts += [
        "",
        "Means over seeds with 95% intervals (Student's t) over seeds. Rates and shares are in percent.",
        "",
    ]
    for game in experiment.games:
        parts += [*_means_table(game, [row for row in rows if row["game"] == game.name]), ""]
    parts += ["## VPR against the others", "", *_comparison_table(main), ""]
    if ablation:
        parts += [
            "## The oracle's strength: weaker oracles against Base and VPR",
            "",
            *_comparison_table(ablation),
            "",
        ]
    return "\n".join(parts)


def _means_table(game: Game, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(rows[0]["scores"])
    head = [f"{game.name}", *map(label, names), "training tokens", "value rollouts' tokens", "CPU s"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        scores = [_shown(name, row["scores"][name]) for name in names]
        tokens = [f"{row[key]:,.0f}" if key in row else "" for key in ("training_tokens", "value_rollout_tokens")]
        lines.append(_line([row["arm"], *scores, *tokens, f"{row['training_cpu_seconds']:.0f}"]))
    return lines


def _comparison_table(comparisons: Sequence[Comparison]) -> list[str]:
    head = ["game", "column", "difference", "mean [over seeds]", "seeds ahead", "p (seeds)", "Holm", "[over tasks]"]
    head += ["p (tasks)", "Holm"]
    lines = [_line(head), _line(["---"] * len(head))]
    for c in comparisons:
        seeds, tasks = (_shown(c.column, dataclasses.asdict(interval)) for interval in (c.seeds, c.tasks))
        p = [f"{value:.3g}" for value in (c.seeds_p, c.seeds_holm, c.tasks_p, c.tasks_holm)]
        between = tasks[tasks.index("[") :]
        ahead = f"{c.ahead} of {c.seeds.n}"
        lines.append(_line([c.game, label(c.column), f"{c.a} - {c.b}", seeds, ahead, *p[:2], between, *p[2:]]))
    return lines


def _shown(name: str, interval: Mapping[str, float]) -> str:
    mean, low, high = (interval[key] for key in ("mean", "low", "high"))
    if name.startswith("return"):
        return f"{mean:.2f} [{low:.2f}, {high:.2f}]"
    return f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    results = Path(__file__).resolve().parent / "results"
    write_again(__doc__, results, lambda paths, folder: write(EXPERIMENT, read_cells(paths), folder), arguments)


if __name__ == "__main__":
    main()
