"""Writes the pages about cells: tables, and what pays in each field."""

from __future__ import annotations

import itertools
import json
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hf_credit.evaluation.markdown import Markup, code, escaped, table
from hf_credit.evaluation.statistics import Interval, mean_with_interval, paired_difference
from hf_credit.files import replaced
from hf_credit_bench import fields
from hf_credit_bench.cells import Cells, ends_of, error_of, to_rows
from hf_credit_bench.fields import BASE, EXACT, FIELDS, KINDS, LADDER, RUNGS, TABLE
from hf_credit_bench.measures import STEPS, make_problem
from hf_credit_bench.play import REFERENCES
from hf_credit_bench.problems import PROBLEMS

NOTHING, NONE, UNKNOWN = "nothing to gain", "no method was better", "not measured"

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

Best = tuple[str, Interval]
"""A method, and its gain on `BASE`."""


def write_parquet(cells: Cells, path: Path) -> None:
    """Writes the cells as one table, as the Hub shows it."""
    import pyarrow as pa
    from pyarrow import parquet

    with replaced(path) as unfinished:
        parquet.write_table(pa.Table.from_pylist(to_rows(cells)), unfinished)


def tables(cells: Cells) -> str:
    """Returns every cell in Markdown, a table per problem, cheapest first."""
    parts = ["# CreditBench\n"]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        dials = "".join(f" {name}={value}" for name, value in sorted(cell["dials"].items()))
        groups.setdefault(cell["problem"] + dials, []).append(cell)
    for problem, group in groups.items():
        parts.append(f"\n## {escaped(problem)}\n\n{_isolates(group[0]['problem'])}\n")
        cheapest = next((one["trace"] for one in group if one["method"] == EXACT), None)
        played = [cell for cell in group if cell["refused"] is None]
        rows = [_row(one, cheapest) for one in sorted(played, key=lambda one: one["trace"] or math.inf)]
        parts.append(table(_COLUMNS, rows))
        refused = {one["method"]: one["refused"] for one in group if one["refused"]}
        parts.extend(f"\n{escaped(name)} does not fit: {escaped(why)}\n" for name, why in refused.items())
    return "\n".join(parts) + "\n"


def _row(cell: Mapping[str, Any], limit: float | None) -> list[str]:
    share = "" if not limit or not cell["trace"] else f"{100 * limit / cell['trace']:.1f} %"
    areas = mean_with_interval(cell["areas"]) if len(cell.get("areas") or ()) > 1 else None
    solved = [one for one in cell.get("tokens_to_90") or () if one is not None]
    error = f", {error_of(cell):g} wrong{', repeated' if cell.get('repeats') else ''}" if error_of(cell) else ""
    return [
        cell["method"] + error,
        _with_error(cell["angle"], cell["angle_error"], "°"),
        _number(cell["scale"]),
        _number(cell["credit_error"]),
        _with_error(cell["along"], cell["along_error"]),
        _with_error(cell["trace"], cell["trace_error"]),
        share,
        "" if areas is None else f"{areas.mean:.3f} [{areas.low:.3f}, {areas.high:.3f}]",
        "" if areas is None else f"{len(solved)} of {areas.n}" + (f", {median(solved):.0f}" if solved else ""),
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


def signed(one: Interval) -> str:
    """Returns a gain with its interval."""
    return f"{one.mean:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"


def best_of(cells: Cells, kind: str) -> Best | str:
    """Returns the method of a kind that gains most on `BASE`, or why none is named.

    Args:
        cells: of one rung.
        kind: of `KINDS`. What it can gain at most is told by its reference.
    """
    gains, base = fields.gains(cells), fields.areas_of(cells, BASE)
    reference = {"starts": fields.STARTS, "oracle": fields.JUDGED, "judge": fields.JUDGED}.get(kind, EXACT)
    closed = reference in gains and gains[reference].mean < fields.LEAST
    of_kind = {
        cell["method"]: cell["areas"]
        for cell in fields.own_of(cells)
        if fields.kind_of(cell) == kind and error_of(cell) in (0.0, fields.JUDGE_ERROR) and not cell.get("repeats")
    }
    if base is None or not (of_kind or closed):
        return UNKNOWN
    found = {name: paired_difference(areas, base, 1 - 0.05 / len(of_kind)) for name, areas in of_kind.items()}
    better = {name: gain for name, gain in found.items() if round(gain.low, 2) > 0}
    if better and (not gains or fields.worth_it(cells)):
        return max(better.items(), key=lambda one: one[1].mean)
    return NOTHING if closed else NONE


def fields_of(cells: Cells) -> dict[str, tuple[Best | str, ...]]:
    """Returns what pays in each of `FIELDS` for each kind of `KINDS` in words, in one row where that is the same."""
    rungs = {rung.field: fields.on_rung(cells, rung) for rung in RUNGS if rung.problem == LADDER}
    rows: dict[tuple[Best | str, ...], list[str]] = {}
    for kind, words in KINDS.items():
        rows.setdefault(tuple(best_of(rungs[field], kind) for field in FIELDS), []).append(words)
    return {"; ".join(words): row for row, words in rows.items() if {*row} - {UNKNOWN, NOTHING}}


def prediction(cells: Cells) -> list[list[str]]:
    """Returns for each rung how well the signal per token at the start predicts learning, over methods.

    This is Spearman's correlation between 1 / cost along the gradient at the start and the area under J.
    """
    import pandas as pd

    rows = []
    for rung in RUNGS:
        found = [one for one in fields.on_rung(cells, rung) if one["along"] and not error_of(one)]
        pairs = [(-one["along"], fmean(one["areas"])) for one in found if one["method"] not in REFERENCES]
        if len(pairs) > 3:
            rank = pd.DataFrame(pairs).corr("spearman").iloc[0, 1]
            rows.append([Markup(code(rung.problem)), rung.said, str(len(pairs)), f"{rank:.2f}"])
    return rows


PICTURE = """\
<picture>
<source media="(max-width: 700px)" srcset="{place}fields_narrow.png">
<img src="{place}fields.png" alt="What pays in each field of length and success at the start">
</picture>

"""


def which_method(cells: Cells, command: str, place: str | None = None) -> str:
    """Returns the guide: what pays in each field, for each requirement.

    Args:
        cells: with learning.
        command: that wrote them and this page.
        place: the folder of the picture relative to the page: empty, or a path that ends in /; `None` without one.
    """
    columns = [f"{length} decisions, {100 * success:g} % success" for length, success in FIELDS]
    rows = [[words, *map(_shown, row)] for words, row in fields_of(cells).items()]
    line, verdicts = _verdicts(cells)
    page = Path(__file__).with_name("which_method.md").read_text(encoding="utf-8")
    return page.format(
        fields=table(["You have", *columns], rows) if rows else "No field was measured.",
        reach="[starts in reach](how-to-rare-success.md)" if place else "starts in reach",
        seeds=max((len(cell.get("areas") or ()) for cell in cells), default=0),
        nothing=NOTHING.capitalize(),
        least=fields.LEAST,
        ladder=LADDER,
        pictures="" if place is None else PICTURE.format(place=place),
        line=textwrap.fill(line, 119),
        verdicts=verdicts,
        judged=fields.JUDGED,
        tasks=_tasks(cells),
        most=fields.SURVIVORS,
        steps=textwrap.fill(_steps(cells), 119),
        agreement=table(["problem", "field", "methods", "rank correlation"], prediction(cells)),
        command=code(command),
    )


def _shown(one: Best | str) -> str:
    if isinstance(one, str):
        return Markup(f"**{one}**") if one == NOTHING else one
    return Markup(f"{code(one[0])} {signed(one[1])}")


def _tasks(cells: Cells) -> str:
    """Returns what pays on each rung, also on those of other runs, next to what its references gain."""
    of_cells = {json.dumps([one["problem"], one["dials"]], sort_keys=True): fields.rung_of(one) for one in cells}
    rows = []
    for rung in [*RUNGS, *(rung for rung in of_cells.values() if rung not in RUNGS)]:
        found = fields.on_rung(cells, rung)
        kinds = {fields.kind_of(one) for one in found if one["method"] not in REFERENCES}
        paid = {kind: best_of(found, kind) for kind in KINDS if kind in kinds}
        named = [f"{KINDS[kind]}: {_shown(one)}" for kind, one in paid.items() if not isinstance(one, str)]
        others = [one for one in (NONE, UNKNOWN, NOTHING) if one in paid.values()]
        said = "above" if named and rung.problem == LADDER else "<br>".join(named)
        pays = Markup(said or "".join(f"**{one}**" for one in others[:1]))
        gains, base = fields.gains(found), fields.areas_of(found, BASE)
        gained = [signed(gains[name]) if name in gains else "" for name in (EXACT, fields.STARTS, fields.JUDGED)]
        if base:
            where = rung.said or ", ".join(f"{name}={value}" for name, value in sorted(rung.dials.items()))
            if not where and rung.problem in PROBLEMS:
                where = f"{ends_of(make_problem(rung.problem))[2]:.2g} decisions"
            named_so = Markup(code(rung.problem))
            rows.append([_isolates(rung.problem), named_so, where, f"{fmean(base):.2f}", *gained, pays])
    header = ["Your task", "problem", "field", code(BASE), "exact advantages", "perfect starts", "verdicts"]
    return table([*header, "what pays"], rows)


def _verdicts(cells: Cells) -> tuple[str, str]:
    """Returns up to where verdicts with errors pay, in a sentence, and the table by ratios of errors."""
    rows = []
    measured: dict[str, list[Mapping[float, Interval]]] = {}
    for rung in (rung for rung in RUNGS if rung.problem in (LADDER, TABLE)):
        found, policy_error = fields.on_rung(cells, rung), fields.own_error(rung)
        base = fields.areas_of(found, BASE)
        for again, said in ((False, "drawn anew"), (True, "repeated")):
            areas = {
                ratio: fields.areas_of(found, fields.JUDGED, round(ratio * policy_error, 4), again and ratio > 0)
                for ratio in (0.0, *fields.RATIOS)
            }
            gained = {ratio: paired_difference(one, base) for ratio, one in areas.items() if one and base}
            if len(gained) > 1 and fields.worth_it(found):
                measured.setdefault(rung.problem, []).append(gained)
                line = line_of(gained)
                shown = [signed(gained[ratio]) if ratio in gained else "" for ratio in areas]
                where = f"{line:.2g} x" if line < math.inf else f"above {max(gained):g} x"
                rows.append([Markup(code(rung.problem)), rung.said, f"{policy_error:.2f}", said, *shown, where])
    if LADDER not in measured:
        return "No judges with errors were measured.", ""
    conditions = (measured[LADDER], *([one] for one in measured.get(TABLE, ())))
    ends = ([min(line_of(one, end) for one in some) for end in ("mean", "low", "high")] for some in conditions)
    shared, *of_table = (f"{mean:.2g} [{low:.2g}, {high:.2g}]".replace("inf", "∞") for mean, low, high in ends)
    sentence = (
        f"**Verdicts pay as long as the judge errs less than {shared} times as often as the policy**, if a network "
        "shares its parameters."
    )
    if of_table:
        sentence += f" In a table the line is at {of_table[0]}, or at {of_table[-1]} if the judge repeats its errors."
    ratios = ["none", *(f"{one:g} x" for one in fields.RATIOS)]
    return sentence, table(["problem", "field", "the policy's errors", "the judge's", *ratios, "the line"], rows)


def line_of(gained: Mapping[float, Interval], end: str = "mean") -> float:
    """Returns the first ratio of errors at which a gain, or an end of its interval, is 0, by linear interpolation;
    0 if none is above 0 at the first ratio, and infinite if all are."""
    if getattr(next(iter(gained.values())), end) <= 0:
        return 0.0
    for before, after in itertools.pairwise(gained):
        left, right = getattr(gained[before], end), getattr(gained[after], end)
        if left > 0 >= right:
            return before + (after - before) * left / (left - right)
    return math.inf


def _steps(cells: Cells) -> str:
    chosen = [cell["step"] for cell in cells if cell.get("areas") and cell.get("step")]
    counts = ", ".join(f"{chosen.count(step)} took {step:g}" for step in STEPS if step in chosen)
    return f"Of {len(chosen)} cells {counts}."
