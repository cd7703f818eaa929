"""Writes the pages about cells: tables, plots, and the recommended methods."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_credit import methods
from hf_credit.bench.cells import Cells, by_dial, grouped, of_defaults, to_rows
from hf_credit.bench.measures import make_problem
from hf_credit.bench.play import REFERENCES
from hf_credit.bench.problems import PROBLEMS
from hf_credit.evaluation.markdown import Markup, code, escaped, table
from hf_credit.evaluation.statistics import mean_with_interval
from hf_credit.files import replaced

KINDS: Mapping[str, tuple[str, str]] = {
    "outcome": ("only an outcome, or intermediate rewards", "only an outcome"),
    "critic": ("a critic that predicts well", "with a critic"),
    "replays": ("replays from any state", "with replays"),
    "both": ("replays, and a critic that predicts well", "with both"),
    "team": ("a team that can play without a member", "without a member"),
    "oracle": ("a program that judges every move", "with an oracle"),
    "answers": ("a task that knows its right answers", "with right answers"),
    "auditor": ("an auditor that verifies steps, and replays", "with an auditor"),
    "own": ("your own method", "your own"),
}
"""The requirements of methods in a user's words, for a row and for a column."""

_NEEDS = {"audits": "auditor", "verdicts": "oracle", "removals": "team", "answers": "answers"}

_PAGE = """\
# Which method?

Find the row of what you have. If several rows apply, the tables below compare them.

{kinds}

The table names the method that was most often the best among those with the same requirements. It is ahead or behind
on a problem if the 95 % intervals of the areas do not overlap, and among the best if its interval overlaps that of the
best method. Measure on a problem like yours: `hf-credit bench --method rloo --method ppo --problem chain`. A
name is the `method` of `CreditTrainer` or of a recipe, and `hf-credit methods NAME` describes it with its options.

{pictures}## For a task like yours

{tasks}

The table shows the best method of each kind, with the area under its learning curve: the mean true value of its policy
over a fixed budget of tokens, including replays and comparison episodes. 0 is the start, 1 the optimum; below 0 the
policy became worse. **Bold** marks the largest area, and those whose 95 % intervals overlap its interval. Each has
{seeds} seeds, and a step size chosen on other seeds. The last column is the exact advantage, which no method knows.

Critics are {critic} here. With `exact` critics, which return the exact value, `ppo` and `mappo` are at their best;
with `noisy`, `taught` or `untaught` ones (`--critic`) they are not. The oracle makes errors only in `verdict` and
`hack`, and judges actions, not their consequences. Policies are tables, which do not generalise between states as
networks do.
All numbers are in `tables.md` beside the cells.

## Does a cheaper signal learn faster?

This is the rank correlation, over methods, of the signal per token at the start (along the true gradient) with the
area under the learning curve. Near 1 the cost of signal predicts the best method, near 0 it does not.

{agreement}

{command} writes this page from the cells.
"""

_COLUMNS = [
    "method",
    "angle",
    "scale",
    "credit off",
    "along",
    "trace",
    "of the limit",
    "area under J",
    "to 90 %",
    "ms",
]

Ranked = tuple[Mapping[str, Any], float, float, float]
"""A cell, and the mean of its areas with the bounds of the interval."""


def write_parquet(cells: Cells, path: Path) -> None:
    """Writes the cells as one table, as the Hub shows it."""
    from datasets import Dataset

    with replaced(path) as beside:
        Dataset.from_list(to_rows(cells)).to_parquet(str(beside))


def tables(cells: Cells) -> str:
    """Returns every cell in Markdown, a table per problem and policy, cheapest first, and the costs along dials."""
    parts = ["# CreditBench\n"]
    for (problem, dials, policy), group in grouped(of_defaults(cells)).items():
        parts.append(f"\n## {escaped(problem + dials)}, {escaped(policy)}\n\n{_isolates(problem)}\n")
        cheapest = next((one["trace"] for one in group if one["method"] == LIMIT), None)
        rows = [_row(one, cheapest) for one in sorted(_played(group), key=lambda one: one["trace"] or math.inf)]
        parts.append(table(_COLUMNS, rows))
        parts.extend(
            f"\n{escaped(one['method'])} does not fit: {escaped(one['refused'])}\n" for one in group if one["refused"]
        )
    for (problem, dial), lines in by_dial(cells).items():
        parts.append(f"\n## {escaped(problem)}: cost by trace against {escaped(dial)}\n")
        values = sorted({value for points in lines.values() for value in points})
        costs = [[method, *(_number(points.get(value)) for value in values)] for method, points in lines.items()]
        parts.append(table(["method", *map(str, values)], costs))
    return "\n".join(parts) + "\n"


LIMIT = "exact_advantage"
"""The reference whose credit all estimators estimate."""


def limit(group: Cells) -> float | None:
    """Returns the area under the learning curve of the exact advantage, if it was trained."""
    areas = next((one["areas"] for one in group if one["method"] == LIMIT and one.get("areas")), None)
    return None if areas is None else float(np.mean(areas))


def _played(group: Cells) -> list[Mapping[str, Any]]:
    return [cell for cell in group if cell["refused"] is None]


def _row(cell: Mapping[str, Any], limit: float | None) -> list[str]:
    share = "" if not limit or not cell["trace"] else f"{100 * limit / cell['trace']:.1f} %"
    areas = mean_with_interval(cell["areas"]) if len(cell.get("areas") or ()) > 1 else None
    solved = [one for one in cell.get("tokens_to_90") or () if one is not None]
    return [
        cell["method"],
        _with_error(cell["angle"], cell["angle_error"], "°"),
        _number(cell["scale"]),
        _number(cell["credit_error"]),
        _with_error(cell["along"], cell["along_error"]),
        _with_error(cell["trace"], cell["trace_error"]),
        share,
        "" if areas is None else f"{areas.mean:.3f} [{areas.low:.3f}, {areas.high:.3f}]",
        "" if areas is None else f"{len(solved)} of {areas.n}" + (f", {np.median(solved):.0f}" if solved else ""),
        f"{1000 * cell['seconds']:.1f}",
    ]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _with_error(value: float | None, error: float | None, unit: str = "") -> str:
    if value is None or error is None:
        return "no signal"
    return f"{value:.3g}{unit} ± {error:.2g}"


def _isolates(problem: str) -> str:
    return make_problem(problem).isolates if problem in PROBLEMS else ""


def ranked(group: Cells) -> list[Ranked]:
    """Returns the trained methods by their area under J, each with mean and interval, without references."""
    trained = []
    for cell in _played(group):
        if cell["method"] not in REFERENCES and len(cell.get("areas") or ()) > 1:
            areas = mean_with_interval(cell["areas"])
            trained.append((cell, areas.mean, areas.low, areas.high))
    return sorted(trained, key=lambda one: -one[1])


def prediction(cells: Cells) -> list[tuple[str, int, float]]:
    """Returns for each problem the number of methods, and how well their signal per token predicts learning.

    This is Spearman's correlation between 1 / cost along the gradient at the start and the area under J.
    """
    import pandas as pd

    found = []
    for (problem, dials, policy), group in grouped(cells).items():
        pairs = [(-one["along"], mean) for one, mean, _, _ in ranked(group) if one["along"]]
        if policy == "start" and len(pairs) > 3:
            found.append((problem + dials, len(pairs), float(pd.DataFrame(pairs).corr("spearman").iloc[0, 1])))
    return found


def kind_of(method: str) -> str:
    """Returns the requirement of a method, a key of `KINDS`; `"own"` for methods outside the library."""
    if method not in methods.METHODS:
        return "own"
    made = methods.make(method)
    needs = [kind for name, kind in _NEEDS.items() if name in getattr(made.estimator, "needs", ())]
    if needs:
        return needs[0]
    replays, critic = getattr(made.collector, "replaying", False), bool(made.critics or made.critic_specs)
    return {(0, 0): "outcome", (0, 1): "critic", (1, 0): "replays", (1, 1): "both"}[bool(replays), critic]


_PICTURE = """\
## {title}

<picture>
<source media="(max-width: 700px)" srcset="{place}{name}_narrow.png">
<img src="{place}{name}.png" alt="{title}">
</picture>

{caption}
"""

PICTURES = {
    "learning": (
        "How much each method learned",
        "One line per problem, one mark per method, with the 95 % interval over seeds. The black bar is the exact "
        "advantage.",
    ),
    "cost": (
        "What a signal costs",
        "Tokens until the signal-to-noise ratio is 1 (by trace), at the start, against a dial of each problem. No "
        "unbiased method without branches is below the exact advantage; a biased one can be, as its signal is not the "
        "true gradient's. A line ends where there is no signal, or no noise.",
    ),
}
"""Title and caption of each plot of `hf_credit.bench.plots`, by the name of its file."""


def which_method(cells: Cells, command: str, place: str = "", pictures: Sequence[str] = ()) -> str:
    """Returns the guide: for each requirement the methods that learned most, and those that overlap the best one.

    Args:
        cells: with learning.
        command: that wrote them and this page.
        place: the folder of the pictures relative to the page: empty, or a path that ends in /.
        pictures: the existing ones of `PICTURES`.
    """
    groups = {
        key: order
        for key, group in grouped(of_defaults(cells)).items()
        if key[2] == "start" and (order := ranked(group))
    }
    kinds = {cell["method"]: kind_of(cell["method"]) for order in groups.values() for cell, *_ in order}
    present = [kind for kind in KINDS if kind in kinds.values()]
    limits = {key: limit(group) for key, group in grouped(of_defaults(cells)).items()}
    tasks = [
        [
            _isolates(problem) or problem,
            Markup(code(problem) + escaped(dials)),
            *(_best_of(order, [one for one in order if kinds[one[0]["method"]] == kind]) for kind in present),
            "" if (most := limits[problem, dials, policy]) is None else f"{most:.2f}",
        ]
        for (problem, dials, policy), order in groups.items()
    ]
    kinds_table = [_of_kind(kind, kinds, list(groups.values())) for kind in present]
    agreement = [[name, str(n), f"{r:.2f}"] for name, n, r in prediction(of_defaults(cells))]
    return _PAGE.format(
        kinds=table(["You have", "use", "compared with only an outcome", "among the best in"], kinds_table),
        pictures="".join(
            _PICTURE.format(place=place, name=name, title=title, caption=textwrap.fill(caption, 119)) + "\n"
            for name, (title, caption) in PICTURES.items()
            if name in pictures
        ),
        tasks=table(["Your task", "problem", *(KINDS[kind][1] for kind in present), "exact"], tasks),
        seeds=max(len(cell.get("areas") or ()) for cell in cells),
        critic=cells[0]["critic"],
        agreement=table(["problem", "methods", "rank correlation"], agreement),
        command=code(command),
    )


def _chosen(kind: str, kinds: Mapping[str, str], groups: Sequence[Sequence[Ranked]]) -> str:
    """Returns the method that most often is the best of its kind or overlaps it; among equals, that with most area."""
    wins: dict[str, int] = {}
    areas: dict[str, list[float]] = {}
    for order in groups:
        of_kind = [one for one in order if kinds[one[0]["method"]] == kind]
        for cell, mean, _, high in of_kind:
            areas.setdefault(cell["method"], []).append(mean)
            wins[cell["method"]] = wins.get(cell["method"], 0) + (high >= of_kind[0][2])
    return max(areas, key=lambda name: (wins[name], float(np.mean(areas[name]))))


def _of_kind(kind: str, kinds: Mapping[str, str], groups: Sequence[Sequence[Ranked]]) -> list[str]:
    """Returns a row of the first table: the method of a kind, compared with the outcome-only method and with all."""
    name, base = _chosen(kind, kinds, groups), _chosen("outcome", kinds, groups) if "outcome" in kinds.values() else ""
    by_name = [{one[0]["method"]: one for one in order} for order in groups]
    played = [(order[0], ranks) for order, ranks in zip(groups, by_name, strict=True) if name in ranks]
    most = sum(ranks[name][3] >= best[2] for best, ranks in played)
    both = [(ranks[name], ranks[base]) for _, ranks in played if base in ranks]
    ahead, behind = (sum(one[2] > other[3] for one, other in pairs) for pairs in (both, [(b, a) for a, b in both]))
    beside = "" if name == base or not both else f"ahead in {ahead}, behind in {behind} of {len(both)}"
    return [KINDS[kind][0], code(name), beside, f"{most} of {len(played)}"]


def _best_of(order: Sequence[Ranked], of_kind: Sequence[Ranked]) -> str:
    """Returns the best method of a kind, bold if its interval overlaps that of the best of all."""
    if not of_kind:
        return ""
    cell, mean, _, high = of_kind[0]
    text = f"{code(cell['method'])} {mean:.2f}"
    return Markup(f"**{text}**" if high >= order[0][2] else text)
