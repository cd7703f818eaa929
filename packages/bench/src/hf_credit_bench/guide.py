"""Writes the pages about cells: tables, plots, and the recommended methods."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_credit import methods
from hf_credit.evaluation.markdown import Markup, code, escaped, table
from hf_credit.evaluation.statistics import Interval, mean_with_interval
from hf_credit.files import replaced
from hf_credit_bench.cells import Cells, by_dial, error_of, grouped, of_defaults, to_rows, uses_critic
from hf_credit_bench.measures import STEPS, make_problem
from hf_credit_bench.play import REFERENCES
from hf_credit_bench.problems import PROBLEMS

KINDS: Mapping[str, tuple[str, str]] = {
    "outcome": ("only an outcome, or intermediate rewards", "only an outcome"),
    "critic": ("a critic", "with a critic"),
    "replays": ("replays from any state", "with replays"),
    "both": ("replays, and a critic", "with both"),
    "team": ("a team that can play without a member", "without a member"),
    "oracle": ("a program that judges every move", "with an oracle"),
    "answers": ("a task that knows its right answers", "with right answers"),
    "auditor": ("an auditor that verifies steps, and replays", "with an auditor"),
    "own": ("your own method", "your own"),
}
"""The requirements of methods in a user's words, for a row and for a column."""

_NEEDS = {"audits": "auditor", "verdicts": "oracle", "removals": "team", "answers": "answers"}

BASE = "outcome_reward"
"""The method that a recommended one has to beat: the simplest, which needs nothing but an outcome."""

_CRITICS: Mapping[str, str] = {
    "exact": "return the exact value, which nobody has",
    "noisy": "are off by a quarter of the spread of values",
    "taught": "learn from earlier updates",
    "untaught": "predict 0",
}

_PAGE = """\
# Which method?

Find the row of what you have. If several rows apply, the tables below compare them.

{kinds}

A method is named only if it learned more than `outcome_reward`: if the 95 % intervals of their areas, means over the
problems that both play, do not overlap. Of several it is the one that gained most. Otherwise **no method was better**,
and the row shows the one that gained most. It is ahead or behind in a problem if the two intervals there are disjoint.
The intervals are over seeds, on which the method was chosen too. Measure on a problem like yours:
`hf-credit bench --method outcome_reward --method ppo --problem chain`. A name is the `method` of `CreditTrainer` or of
a recipe, and `hf-credit methods NAME` describes it with its options.

{pictures}## For a task like yours

{tasks}

The table shows the best method of each kind, with the area under its learning curve: the mean true value of its policy
over a fixed budget of tokens, including replays and comparison episodes. 0 is the start, 1 the optimum; below 0 the
policy became worse. A dash: no method of the kind was better than `outcome_reward` there. **Bold** marks the largest
area, and those whose 95 % intervals overlap its interval. Each has {seeds} seeds. The last column is the exact
advantage, which no method knows.

{conditions}

{steps}
Policies are tables, which do not generalise between states as networks do, and most problems have one task, where one
baseline for the whole update, as in `outcome_reward`, serves best. All numbers are in `tables.md` beside the cells.

{exact}## Does a cheaper signal learn faster?

This is the rank correlation, over methods, of the signal per token at the start (along the true gradient) with the
area under the learning curve. Near 1 the cost of signal predicts the best method, near 0 it does not.

{agreement}

{command} writes this page from the cells.
"""

_EXACT = """\
## With exact critics and oracles

The same methods with critics that return the exact value, and oracles that err only where dials say so: what better
ones could gain.

{kinds}

{tasks}

"""

_COLUMNS = [
    "method",
    "angle",
    "scale",
    "credit off",
    "along",
    "trace",
    "of the exact",
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
        "unknown" if cell["seconds"] is None else f"{1000 * cell['seconds']:.1f}",
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
    replays = bool(getattr(made.collector, "replaying", False))
    return {(0, 0): "outcome", (0, 1): "critic", (1, 0): "replays", (1, 1): "both"}[replays, uses_critic(method)]


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
        "One line per problem, one mark per method, with the 95 % interval over seeds. The hollow mark is the plain "
        "outcome, the black bar the exact advantage.",
    ),
    "cost": (
        "What a signal costs",
        "Tokens until the signal-to-noise ratio is 1 (by trace), at the start, against a dial of each problem. The "
        "exact advantage is no lower bound: a method can be below it if it branches, if it is biased, as its signal "
        "is not the true gradient's, and also unbiased where the policy does not see the whole state, on which the "
        "exact advantage depends (`ppo` in `relay`). A line ends where there is no signal, or no noise.",
    ),
}
"""Title and caption of each plot of `hf_credit_bench.plots`, by the name of its file."""


def which_method(cells: Cells, command: str, place: str = "", pictures: Sequence[str] = (), exact: Cells = ()) -> str:
    """Returns the guide: for each requirement the method that gained most on `BASE`, if one learned more at all.

    Args:
        cells: with learning.
        command: that wrote them and this page.
        place: the folder of the pictures relative to the page: empty, or a path that ends in /.
        pictures: the existing ones of `PICTURES`.
        exact: cells with exact critics and oracles, where the others are not.
    """
    kinds, tasks = _compared(cells)
    agreement = [[name, str(n), f"{r:.2f}"] for name, n, r in prediction(of_defaults(cells))]
    return _PAGE.format(
        kinds=kinds,
        pictures="".join(
            _PICTURE.format(place=place, name=name, title=title, caption=textwrap.fill(caption, 119)) + "\n"
            for name, (title, caption) in PICTURES.items()
            if name in pictures
        ),
        tasks=tasks,
        seeds=max(len(cell.get("areas") or ()) for cell in cells),
        conditions=textwrap.fill(_conditions(cells), 119),
        steps=textwrap.fill(_steps(cells), 119),
        exact="" if not exact else _EXACT.format(**dict(zip(("kinds", "tasks"), _compared(exact), strict=True))),
        agreement=table(["problem", "methods", "rank correlation"], agreement),
        command=code(command),
    )


def _compared(cells: Cells) -> tuple[str, str]:
    """Returns the table of requirements, and that of problems."""
    groups = {
        key: (order, limit(group))
        for key, group in grouped(of_defaults(cells)).items()
        if key[2] == "start" and (order := ranked(group))
    }
    orders = [order for order, _ in groups.values()]
    kinds = {one[0]["method"]: kind_of(one[0]["method"]) for order in orders for one in order}
    present = [kind for kind in KINDS if kind in kinds.values()]
    requirements = [
        _of_kind(kind, [name for name, own in kinds.items() if own == kind and name != BASE], orders)
        for kind in present
    ]
    tasks = [
        [
            _isolates(problem) or problem,
            Markup(code(problem) + escaped(dials)),
            *(_best_of(order, [one for one in order if kinds[one[0]["method"]] == kind]) for kind in present),
            "" if most is None else f"{most:.2f}",
        ]
        for (problem, dials, _), (order, most) in groups.items()
    ]
    header = ["You have", "use", "area", code(BASE), "ahead, behind, of problems"]
    columns = ["Your task", "problem", *(KINDS[kind][1] for kind in present), "exact"]
    return table(header, requirements), table(columns, tasks)


def _of_kind(kind: str, names: Sequence[str], orders: Sequence[Sequence[Ranked]]) -> list[str]:
    """Returns a row of the table of requirements: the method that gained most on `BASE`, or none that did."""
    found = {name: _beside(name, orders) for name in names}
    known = {name: pair for name, pair in found.items() if pair is not None}
    if not known:
        return [KINDS[kind][0], Markup(f"nothing to compare with {code(BASE)}") if names else code(BASE), "", "", ""]
    better = {name: pair for name, pair in known.items() if pair[0].low > pair[1].high}
    name, (own, base) = max((better or known).items(), key=lambda one: one[1][0].mean - one[1][1].mean)
    ranks = [{one[0]["method"]: one for one in order} for order in orders]
    both = [(one[name], one[BASE]) for one in ranks if name in one and BASE in one]
    ahead, behind = (sum(one[2] > other[3] for one, other in pairs) for pairs in (both, [(b, a) for a, b in both]))
    use = code(name) if better else Markup("**no method was better**")
    shown = f"{own.mean:.3f} [{own.low:.3f}, {own.high:.3f}]"
    return [
        KINDS[kind][0],
        use,
        shown if better else Markup(f"{code(name)} {shown}"),
        f"{base.mean:.3f} [{base.low:.3f}, {base.high:.3f}]",
        f"{ahead}, {behind}, of {len(both)}",
    ]


def _beside(name: str, orders: Sequence[Sequence[Ranked]]) -> tuple[Interval, Interval] | None:
    """Returns the mean areas of a method and of `BASE` over the problems that both play, with intervals over seeds."""
    areas = [{one[0]["method"]: one[0]["areas"] for one in order} for order in orders]
    pairs = [(one[name], one[BASE]) for one in areas if name in one and BASE in one]
    if not pairs:
        return None
    seeds = min(len(one) for pair in pairs for one in pair)
    own, base = np.array([[list(one[:seeds]) for one in pair] for pair in pairs], dtype=float).mean(axis=0)
    return mean_with_interval(own.tolist()), mean_with_interval(base.tolist())


def _best_of(order: Sequence[Ranked], of_kind: Sequence[Ranked]) -> str:
    """Returns the best method of a kind that beats `BASE`, bold if its interval overlaps that of the best of all."""
    if not of_kind:
        return ""
    base = next((high for cell, _, _, high in order if cell["method"] == BASE), -math.inf)
    found = [one for one in of_kind if one[2] > base or one[0]["method"] == BASE]
    if not found:
        return "-"
    cell, mean, _, high = found[0]
    text = f"{code(cell['method'])} {mean:.2f}"
    return Markup(f"**{text}**" if high >= order[0][2] else text)


def _conditions(cells: Cells) -> str:
    critics = {cell["critic"] for cell in cells if cell["method"] in methods.METHODS and uses_critic(cell["method"])}
    error = max([0.0, *map(error_of, cells)])
    wrong = f"An oracle's verdict is wrong with probability {error:g}, except" if error else "An oracle errs only"
    return (
        "".join(f"Critics {_CRITICS[critic]} (`--critic {critic}`). " for critic in sorted(critics))
        + f"{wrong} in `verdict` and `hack`, whose dials say how often (`--oracle-error {error:g}`); it judges "
        "actions, not their consequences. An auditor makes no errors."
    )


def _steps(cells: Cells) -> str:
    chosen = [cell["step"] for cell in cells if cell.get("areas") and cell.get("step")]
    return (
        f"Step sizes follow one rule for all: of {', '.join(f'{step:g}' for step in STEPS)} (the norm of an update of "
        "the logits) a method takes in each problem the one with the largest area on two other seeds. "
        + ", ".join(f"{chosen.count(step)} took {step:g}" for step in STEPS)
        + ". No logit moves by more than 0.5 in an update, so larger ones would change nothing."
    )
