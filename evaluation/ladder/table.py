"""Writes the tables, the predictions and the picture of `run.py` again from the finished cells.

python evaluation/ladder/table.py
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from drawing import tidy
from experiment import ARMS, BEFOREHAND, CLAIMS, LOOKS, RISE, SEEDS, START, TAUGHT, WORLDS, Claim
from finished_cells import CELLS_FILE, Cell, common_seeds, interval, load, mean, read, verdict, write, write_again
from matplotlib.figure import Figure
from run import key

from hf_credit.evaluation.markdown import table
from hf_credit.evaluation.statistics import holm, mean_interval, permutation_test

HERE = Path(__file__).resolve().parent
Cells = Mapping[tuple[str, str, str], Mapping[int, Cell]]
DISAGREES = 0.1
"""The share of comparisons from which on verdicts are predicted to be overtaken (registered beforehand)."""
COLOURS = (
    *("#777777", "#0072b2", "#56b4e9", "#cc79a7", "#000000", "#e69f00", "#999933", "#882255", "#aa4499"),
    *("#d55e00", "#f0b27a", "#117733", "#44aa99"),
)
IN_WORDS = {
    "start": "before training",
    "outcome_reward": "outcome",
    "verifiable_process": "an oracle judges every move (VPR)",
    "verdicts_first": "verdicts first, the outcome later",
    "half_and_half": "half verdicts, half outcome",
    "replay_loo": "replays (C3)",
    "active_replay": "replays and a critic",
    "starts_of_oracle": "outcome, begins late in right play",
    "starts_of_own": "outcome, begins late in own successes",
    "verdicts_from_starts": "VPR, begins late in right play",
    "verdicts_first_from_starts": "verdicts first, begins late in right play",
}
MIXED = ("verdicts_first", "half_and_half", "verdicts_first_from_starts")
EARLY, FINAL = 0.25, 1.0
PRETRAINED = "sudoku, SmolLM2-135M-Instruct"
RUNGS_OF_PRETRAINED = {"sudoku": "4", "sudoku_8": "8", "sudoku_12": "12"}
"""The rungs of the pretrained model, which `evaluation/real` trains, by its task."""


LEAST = 6
"""Seeds of an arm that is drawn, or decides a prediction: with fewer no sign test can."""


def successes(cells: Cells, world: str, rung: str, arm: str, look: float) -> dict[int, float]:
    """The held-out success of each finished seed of an arm at a share of the budget."""
    found = cells.get((world, rung, arm), {})
    return {seed: cell["looks"][LOOKS.index(look)]["success"] for seed, cell in found.items() if seed in SEEDS}


def spent(cells: Cells, world: str, rung: str, arm: str) -> dict[int, float]:
    """The share of the budget at which each seed of an arm reaches `RISE` above the start, by lines between its looks.

    It is 1 if a seed never does.
    """
    start = cells[world, rung, START][0]["success"]
    found = {}
    for seed in cells.get((world, rung, arm), {}):
        looks = [start, *(successes(cells, world, rung, arm, look)[seed] for look in LOOKS)]
        first = next((at for at, own in enumerate(looks) if own >= start + RISE), None)
        found[seed] = 1.0
        if first is not None:
            found[seed] = float(
                np.interp(start + RISE, looks[first - 1 : first + 1], [0, *LOOKS][first - 1 : first + 1])
            )
    return found


def numbers(cells: Cells, claim: Claim) -> list[float]:
    """The number of each seed that a claim is about, without its margin: a difference, or its slope over rungs."""
    seeds = common_seeds(cells, *((claim.world, rung, arm) for rung in claim.rungs for arm in claim.arms))
    found = []
    for seed in (seed for seed in seeds if seed in SEEDS):
        first, second = (
            [
                successes(cells, claim.world, rung, arm, claim.look)[seed]
                if claim.look
                else -spent(cells, claim.world, rung, arm)[seed]
                for rung in claim.rungs
            ]
            for arm in claim.arms
        )
        differences = np.subtract(first, second)
        slope = len(claim.rungs) > 1
        found.append(float(np.polyfit(range(len(differences)), differences, 1)[0] if slope else differences[0]))
    return found


def decided(cells: Cells, world: str) -> list[list[str]]:
    """A row for each claim of a world: Holm over all of its claims, those that are not finished counted as p = 1."""
    claims = [claim for claim in CLAIMS if claim.world == world]
    found = [numbers(cells, claim) for claim in claims]
    tested = [
        permutation_test(np.add(own, claim.margin), np.zeros(len(own))).p_value if len(own) > 1 else 1.0
        for claim, own in zip(claims, found, strict=True)
    ]
    rows = []
    for claim, own, p in zip(claims, found, holm(tested), strict=True):
        about = [
            f"{claim.says}: not behind by {claim.margin:g}" if claim.margin else claim.says,
            " - ".join(claim.arms),
            "; ".join(claim.rungs),
            f"{claim.look:g}" if claim.look else "to .1 above the start",
            str(len(own)),
        ]
        if len(own) < 2:
            rows.append([*about, "", "", "not run"])
            continue
        ahead, of_claim = sum(one > 0 for one in own), verdict(mean_interval(np.add(own, claim.margin)), p)
        shown = interval(mean_interval(own), signed=True)
        rows.append([*about, shown, f"{ahead} of {len(own)}", f"{p:.3f} {of_claim}"])
    return rows


def predicted(cell: Cell) -> dict[str, tuple[bool, bool]]:
    """For each method that was looked at beforehand, whether it leads the outcome early, and at the end.

    A signal that costs fewer tokens leads early. It leads at the end, too, but for verdicts that order at least
    `DISAGREES` of the pairs of episodes otherwise than the outcome.
    """

    def cost(method: str) -> float:
        return float(cell["signals"][method]["cost"]["mean"] or math.inf)

    against, comparisons = cell["disagreement"]
    agree = against < DISAGREES * max(comparisons, 1)
    early = {name: cost(name) < cost("outcome_reward") for name in cell["signals"] if name != "outcome_reward"}
    return {name: (one, one and (agree or name != "verifiable_process")) for name, one in early.items()}


def all_predicted(cells: Cells) -> dict[str, dict[str, dict[str, bool]]]:
    """What is predicted at every start, by its name and by method."""
    return {
        f"{world}, {rung}": {
            name: dict(zip(("early", "final"), leads, strict=True)) for name, leads in predicted(own[0]).items()
        }
        for (world, rung, arm), own in sorted(cells.items())
        if arm == BEFOREHAND
    }


def predictions(cells: Cells) -> list[list[str]]:
    """A row for each start and method: what was predicted, and what came."""
    rows = []
    for (world, rung, arm), own in sorted(cells.items()):
        if arm != BEFOREHAND:
            continue
        for method, leads in predicted(own[0]).items():
            name = {"rloo": "grpo"}.get(method, method)
            came = [lead(cells, world, rung, name, look) for look in (EARLY, FINAL)]
            told = ["yes" if one else "no" for one in leads]
            rows.append([world, rung, name, told[0], came[0], told[1], came[1]])
    return rows


def lead(cells: Cells, world: str, rung: str, arm: str, look: float) -> str:
    """Whether an arm leads the outcome, where the interval of the difference excludes 0; else nothing."""
    own = numbers(cells, Claim(world=world, says="", arms=(arm, "outcome_reward"), rungs=(rung,), look=look))
    if len(own) < LEAST:
        return ""
    found = mean_interval(own)
    return "yes" if found.low > 0 else "no" if found.high < 0 else "undecided"


def hits(rows: Sequence[Sequence[str]]) -> str:
    """How often predictions came, and how often the more frequent answer did."""
    pairs = [(row[at], row[at + 1]) for row in rows for at in (3, 5) if row[at + 1] in ("yes", "no")]
    if not pairs:
        return "No prediction is decided yet."
    right = sum(told == came for told, came in pairs)
    often = max(sum(came == one for _, came in pairs) for one in ("yes", "no"))
    return (
        f"{right} of {len(pairs)} decided predictions were right; the more frequent answer alone would be in {often}."
    )


def markdown(cells: Cells) -> str:
    """The tables."""
    starts, rows = [], []
    for world, own in WORLDS.items():
        for rung in own.rungs:
            start, taught = (cells.get((world, rung, arm), {}).get(0) for arm in (START, TAUGHT))
            if start is None:
                continue
            starts.append([world, rung, f"{start['decisions']:.1f}", f"{start['success']:.3f}"])
            starts[-1].append("" if taught is None else f"{taught['success']:.3f}")
            for arm in ARMS:
                trained = cells.get((world, rung, arm), {})
                if trained:
                    looked = [mean([*successes(cells, world, rung, arm, look).values()]) for look in LOOKS]
                    cost = [
                        f"{fmean(one[name] for one in trained.values()):,.0f}" for name in ("updates", "cpu_seconds")
                    ]
                    rows.append([world, rung, arm, str(len(trained)), *looked, *cost])
    told = predictions(cells)
    header = ["claim", "arms", "rungs", "of the budget", "seeds", "difference or slope", "seeds ahead", "p after Holm"]
    families = "\n\n".join(
        f"### {world}\n\n{table(header, decided(cells, world))}"
        for world in WORLDS
        if any(w == world for w, *_ in cells)
    )
    said = ["world", "rung", "method", "early: predicted", "came", "at the end: predicted", "came"]
    return f"""# Success over the number of decisions

Written by `evaluation/ladder/run.py`; do not edit. How to read it: `../README.md`.

## Starts

{table(["world", "rung", "decisions", "start", "taught"], starts)}

## Success on held-out tasks, at shares of the budget

{table(["world", "rung", "arm", "seeds", *(f"{look:g}" for look in LOOKS), "updates", "seconds"], rows)}

## Claims

The test of "not behind by .05" is of the difference plus .05.

{families}

## Predictions

{hits(told)}

{table(said, told)}
"""


def of_pretrained(cells: Iterable[Cell]) -> dict[tuple[str, str, str], dict[int, Cell]]:
    """The cells of `evaluation/real` on Sudoku as those of a world of the ladder, arms without their rates."""
    found: dict[tuple[str, str, str], dict[int, Cell]] = {}
    for cell in cells:
        rung, arm = RUNGS_OF_PRETRAINED.get(cell["task"]), cell["method"].partition("@")[0]
        if rung and cell["seed"] in SEEDS and "success" in cell:
            looks = [{"success": cell["success"]}] * len(LOOKS)
            name = {"outcome_from_walks": "starts_of_oracle"}.get(arm, arm)
            found.setdefault((PRETRAINED, rung, name), {})[cell["seed"]] = {
                **cell,
                "looks": looks,
                "decisions": float(rung),
            }
    return found


def draw(cells: Cells, path: Path, narrow: bool = False) -> None:
    """Success at the end over the number of decisions: a panel for each world, a line for each arm; for a `narrow`
    screen below each other. The few seeds of the pretrained model are dots in place of an interval."""
    rungs = {**{world: tuple(own.rungs) for world, own in WORLDS.items()}, PRETRAINED: ("4", "8", "12")}
    least = {world: 2 if world == PRETRAINED else LEAST for world in rungs}
    trained = [own for (own, _, arm), found in cells.items() if arm in ARMS and len(found) >= least[own]]
    worlds = [world for world in rungs if world in trained]
    panels = max(len(worlds), 1)
    size = (4.2, 1.8 + 3.4 * panels) if narrow else (3.6 + 3.8 * panels, 4.2)
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    axes = figure.subplots(*((panels, 1) if narrow else (1, panels)), squeeze=False, sharey=True).flatten()
    shown: dict[str, Any] = {}
    for world, axis in zip(worlds, axes, strict=False):
        started = {rung: cells[world, rung, START][0] for rung in rungs[world] if (world, rung, START) in cells}
        right = {rung: one["decisions"] for rung, one in started.items()}
        (shown["start"],) = axis.plot([*right.values()], [one["success"] for one in started.values()], "k:")
        beside, seeds = 0, set[int]()
        for arm, colour in zip(ARMS, COLOURS, strict=True):
            finals = {rung: [*successes(cells, world, rung, arm, FINAL).values()] for rung in right}
            found = {rung: mean_interval(own) for rung, own in finals.items() if len(own) >= least[world]}
            if found:
                seeds |= {len(finals[rung]) for rung in found}
                ends = [(one.mean - one.low, one.high - one.mean) for one in found.values()]
                y, alone = [one.mean for one in found.values()], len(found) == 1
                beside += alone  # what is run on one rung alone stands beside it
                x = [right[rung] + alone * 0.015 * (1 + beside) * max(right.values()) for rung in found]
                style = {"color": colour, "marker": "s" if alone else "o", "capsize": 2, "markersize": 5 - alone}
                few = world == PRETRAINED  # its rungs differ in more than decisions, so no line joins them
                style["linestyle"] = "" if few else "--" if arm in MIXED else "-"  # which may lie on another line
                drawn = axis.errorbar(x, y, yerr=None if few else np.transpose(ends), **style)
                shown.setdefault(arm, drawn)
                for at, rung in zip(x if few else (), found, strict=False):
                    axis.plot([at] * len(finals[rung]), finals[rung], "_", color=colour, alpha=0.6)
        axis.set_title(world if world == PRETRAINED else f"{world}, {min(seeds, default=0)} seeds", loc="left")
        axis.set_ylim(0, 1)
        tidy(axis, "decisions of a right play", "held-out success after training" if narrow or axis is axes[0] else "")
    names = [IN_WORDS.get(name, name) for name in shown]
    place = "outside lower left" if narrow else "outside right center"
    figure.legend([*shown.values()], names, loc=place, frameon=False, fontsize="small")
    figure.savefig(path)


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells and what follows from them."""
    cells: Any = read(paths, key)
    write(cells, folder, markdown(cells))
    (folder / "predictions.json").write_text(json.dumps(all_predicted(cells), indent=1) + "\n", encoding="utf-8")
    pretrained = of_pretrained(load([HERE.parent / "real" / "results" / CELLS_FILE]))
    draw({**cells, **pretrained}, folder / "ladder.png")
    draw({**cells, **pretrained}, folder / "ladder_narrow.png", narrow=True)


if __name__ == "__main__":
    write_again(__doc__, HERE / "results", write_tables)
