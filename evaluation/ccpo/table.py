"""The tables of the evidence from finished cells.

python evaluation/ccpo/table.py        # again from the committed results/cells.json, without training anything
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import BASE, CCPO, DECIDING, SHARED, SHARED_EIGHT, TEAMS
from finished_cells import EQUAL, Cell, common_seeds, interval, mean, read, verdict, write, write_again

from hf_credit.evaluation.report import table
from hf_credit.evaluation.statistics import holm, paired_difference, permutation_test

Cells = Mapping[tuple[str, str], Mapping[int, Cell]]
"""Finished cells by team and arm, and by seed."""

COLUMNS: Mapping[str, Callable[[Cell], float | None]] = {
    "exact value, held out": lambda cell: cell["exact"]["held_out"]["value"],
    "exact value, training": lambda cell: cell["exact"]["train"]["value"],
    "area under it": lambda cell: _area(cell),
    "lazy one's contribution": lambda cell: cell["exact"]["train"].get("contribution"),
    "right message": lambda cell: cell["exact"]["train"].get("lazy_right"),
    "stock message": lambda cell: cell["exact"]["train"].get("stock"),
    "I(S; M), bits": lambda cell: cell["exact"]["train"].get("information"),
}


def read_cells(paths: Iterable[Path]) -> Cells:
    """The cells in some files, each with one cell or a list of them."""
    return read(paths, lambda cell: (cell["team"], cell["arm"]))


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells in some files, and the tables, into a folder."""
    cells = read_cells(paths)
    write(cells, folder, markdown(cells))


def markdown(cells: Cells) -> str:
    """All tables."""
    parts = [
        "# Results",
        "",
        "Written by `evaluation/ccpo/table.py`; do not edit. How to read it: `../README.md`.",
        "",
    ]
    parts += _deciding(cells)
    parts += _at_equal_episodes(cells)
    parts += _on_the_way(cells)
    for name, team in TEAMS.items():
        if not any((name, arm) in cells for arm in team.arms):
            continue
        parts += [
            f"## {team.title}",
            "",
            "Means over seeds with 95% intervals (Student's t).",
            "",
            _team(cells, name),
            "",
        ]
        parts += ["Beside the shared reward, over the same seeds; positive where the arm's number is the higher.", ""]
        parts += [_differences(cells, name), ""]
        parts += _alone(cells, name)
        parts += ["Spearman's correlation of credit with exact advantages, mean over the updates looked at.", ""]
        parts += [_fidelity(cells, name), "", "What a training took.", "", _ledger(cells, name), ""]
    return "\n".join(parts)


def of_arm(cells: Cells, team: str, arm: str, column: str, seeds: Sequence[int] | None = None) -> list[float]:
    """One number a seed."""
    own = cells.get((team, arm), {})
    values = [COLUMNS[column](own[seed]) for seed in (sorted(own) if seeds is None else seeds)]
    return [value for value in values if value is not None]


def _deciding(cells: Cells) -> list[str]:
    column = "exact value, training"
    found = []
    for team in DECIDING:
        seeds = common_seeds(cells, (team, SHARED), (team, CCPO))
        if len(seeds) < 2:
            return []
        ours, theirs = (of_arm(cells, team, arm, column, seeds) for arm in (CCPO, SHARED))
        found.append(
            (team, seeds, paired_difference(ours, theirs), permutation_test(ours, theirs).p_value, ours, theirs)
        )
    adjusted = holm([p for _, _, _, p, _, _ in found])
    rows = [
        [
            TEAMS[team].title,
            str(len(seeds)),
            interval(difference, signed=True),
            f"{sum(a > b for a, b in zip(ours, theirs, strict=True))} of {len(seeds)}",
            f"{p:.4f}",
            f"{held:.4f}",
            verdict(difference, held, behind="the shared reward is ahead"),
        ]
        for (team, seeds, difference, p, ours, theirs), held in zip(found, adjusted, strict=True)
    ]
    return [
        "## The deciding test",
        "",
        "Exact value of the team on its training tasks after training, CCPO less shared reward, at equal scores; "
        f"exact sign-flip test over seeds, Holm over the teams. Supported: p < 0.05 and at least {EQUAL}. No "
        f"difference: the interval lies within {EQUAL} of 0.",
        "",
        table(["", "seeds", "CCPO less shared", "CCPO ahead", "p", "p, Holm", "verdict"], rows),
        "",
    ]


def _at_equal_episodes(cells: Cells) -> list[str]:
    """The relay again, where the deciding test has half as many episodes of CCPO as of the shared reward."""
    seeds = common_seeds(cells, ("relay", SHARED_EIGHT), ("relay", CCPO))
    if len(seeds) < 2:
        return []
    ours, theirs = (of_arm(cells, "relay", arm, "exact value, training", seeds) for arm in (CCPO, SHARED_EIGHT))
    return [
        f"In the relay CCPO has half of the shared reward's episodes. At equal episodes, hence half of the scores, "
        f"over {len(seeds)} seeds: {interval(paired_difference(ours, theirs), signed=True)}, CCPO ahead in "
        f"{sum(a > b for a, b in zip(ours, theirs, strict=True))}, p = {permutation_test(ours, theirs).p_value:.4f}; "
        "looked at afterwards.",
        "",
    ]


def _on_the_way(cells: Cells) -> list[str]:
    """CCPO less shared reward while the deciding teams learn."""
    rows = []
    for team in DECIDING:
        seeds = common_seeds(cells, (team, SHARED), (team, CCPO))
        if len(seeds) < 2:
            return []
        ours, theirs = ([cells[team, arm][seed]["on_the_way"] for seed in seeds] for arm in (CCPO, SHARED))
        for at in range(1, len(ours[0])):  # the first look is before any update
            row = [TEAMS[team].title.partition(":")[0].partition(",")[0], str(ours[0][at]["update"])]
            for name in ("value", "stock"):
                a, b = ([looks[at]["train"][name] for looks in arm] for arm in (ours, theirs))
                higher = f"{sum(x > y for x, y in zip(a, b, strict=True))} of {len(seeds)}"
                row += [
                    interval(paired_difference(a, b), signed=True),
                    higher,
                    f"{permutation_test(a, b).p_value:.4f}",
                ]
            rows.append(row)
    columns = ["exact value, training", "higher", "p", "stock message", "higher", "p"]
    return [
        "On the way, CCPO less shared reward on training tasks over the same seeds, by the updates made; looked at "
        "afterwards, p as above without a correction.",
        "",
        table(["", "updates", *columns], rows),
        "",
    ]


def _team(cells: Cells, team: str) -> str:
    arms = [arm for arm in (BASE, *TEAMS[team].arms) if (team, arm) in cells]
    rows = [
        [arm, str(len(cells[team, arm])), *(mean(of_arm(cells, team, arm, column)) for column in COLUMNS)]
        for arm in arms
    ]
    return table(["", "seeds", *COLUMNS], rows)


def _alone(cells: Cells, team: str) -> list[str]:
    """What one agent is worth that answers by itself, once or as often as the team has members."""
    kinds = {"one reply": "one_reply", "a vote of as many as the team": "value", "any of them": "any_reply"}
    rows = []
    for arm in TEAMS[team].arms:
        own = [cell["exact"] for _, cell in sorted(cells.get((team, arm), {}).items())]
        if own and "one_reply" in own[0]["train"]:
            found = [[one[split][kind] for one in own] for split in ("held_out", "train") for kind in kinds.values()]
            rows.append([arm, str(len(own)), *map(mean, found)])
    if not rows:
        return []
    columns = [f"{kind}, {split}" for split in ("held out", "training") for kind in kinds]
    return ["One agent alone, exactly; above, its value is the vote's.", "", table(["", "seeds", *columns], rows), ""]


def _differences(cells: Cells, team: str) -> str:
    rows = []
    columns = [column for column in COLUMNS if "value" in column or column == "area under it"]
    for arm in TEAMS[team].arms:
        seeds = common_seeds(cells, (team, arm), (team, SHARED))
        if arm == SHARED or len(seeds) < 2:
            continue
        pairs = [tuple(of_arm(cells, team, one, column, seeds) for one in (arm, SHARED)) for column in columns]
        # What was not trained has no curve.
        told = ["" if not a else interval(paired_difference(a, b), signed=True) for a, b in pairs]
        rows.append([arm, str(len(seeds)), *told])
    return table(["", "seeds", *columns], rows)


def _fidelity(cells: Cells, team: str) -> str:
    roles = sorted(
        {role for (name, _), own in cells.items() if name == team for cell in own.values() for role in _roles(cell)}
    )
    rows = []
    for arm in TEAMS[team].arms:
        own = {seed: cell for seed, cell in cells.get((team, arm), {}).items() if "on_the_way" in cell}
        if own:
            rows.append([arm, str(len(own)), *(mean(_rho(own, role)) for role in roles)])
    return table(["", "seeds", *roles], rows)


def _rho(own: Mapping[int, Cell], role: str) -> list[float]:
    found = []
    for seed in sorted(own):
        values = [look["fidelity"].get(role) for look in own[seed]["on_the_way"]]
        known = [value for value in values if value is not None]
        found += [fmean(known)] if known else []
    return found


def _roles(cell: Cell) -> set[str]:
    return {role for look in cell.get("on_the_way", ()) for role in look["fidelity"]}


def _ledger(cells: Cells, team: str) -> str:
    rows = []
    for arm in TEAMS[team].arms:
        own = [cell["ledger"] for cell in cells.get((team, arm), {}).values() if "ledger" in cell]
        if own:
            names = ("scoring_events", "completion_tokens", "prompt_tokens")
            rows.append([arm, *(f"{fmean(one[name] for one in own):,.0f}" for name in names)])
    return table(["", "scores", "generated tokens", "tokens given"], rows)


def _area(cell: Cell) -> float | None:
    """The mean of the exact value on training tasks over the updates, by the trapezoidal rule."""
    if "on_the_way" not in cell:
        return None
    points = [(look["update"], look["train"]["value"]) for look in cell["on_the_way"]]
    points.append((len(cell["reward"]), cell["exact"]["train"]["value"]))
    width = points[-1][0] - points[0][0]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points)) / width


if __name__ == "__main__":
    write_again(__doc__, Path(__file__).resolve().parent / "results", write_tables)
