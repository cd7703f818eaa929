"""The guide and its picture: what they say of cells whose numbers are small enough to check by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from hf_credit.evaluation.statistics import Interval, paired_difference
from hf_credit_bench import cells, fields, guide, plots
from hf_credit_bench.fields import BASE, EXACT, FIELDS, JUDGED, LADDER, RUNGS, STARTS, Rung

LADDERS = {rung.field: rung for rung in RUNGS if rung.problem == LADDER}
MIDDLE = LADDERS[fields.MIDDLE]


def cell(method: str, areas: list[float], rung: Rung = MIDDLE, **asked: Any) -> dict[str, Any]:
    numbers = ("angle", "angle_error", "scale", "credit_error", "along", "along_error", "trace_error", "seconds")
    known = {
        "method": method,
        "problem": rung.problem,
        "dials": dict(rung.dials),
        "policy": "start",
        "critic": "exact",
    }
    trained = {"areas": areas, "tokens_to_90": [None] * len(areas), "step": 0.5}
    return {**known, **dict.fromkeys(numbers, 1.0), "trace": 4.0, "refused": None, **trained, **asked}


BASES = [0.4, 0.42, 0.41]


def references(rung: Rung = MIDDLE, exact: float = 0.6, starts: float = 0.6, judged: float = 0.6) -> list[Any]:
    given = {EXACT: exact, STARTS: starts, JUDGED: judged}
    return [cell(BASE, BASES, rung), *(cell(name, [area] * 3, rung) for name, area in given.items())]


def test_a_method_is_named_only_if_the_interval_of_its_gain_lies_above_0() -> None:
    found = [*references(), cell("ppo", [0.8, 0.82, 0.81]), cell("rloo", [0.41, 0.42, 0.4])]
    name, gain = guide.best_of(found, "critic")
    assert (name, round(gain.mean, 6), round(gain.low, 6), round(gain.high, 6)) == ("ppo", 0.4, 0.4, 0.4)
    assert guide.best_of(found, "outcome") == guide.NONE
    assert guide.best_of(found, "replays") == guide.UNKNOWN


def test_intervals_are_widened_for_the_methods_of_a_row() -> None:
    areas = [0.52, 0.62, 0.6]  # gains of .12, .2 and .19: their interval is above 0 alone, and not among four
    alone, four = paired_difference(areas, BASES), paired_difference(areas, BASES, 1 - 0.05 / 4)
    assert four.low < 0 < alone.low
    found = [*references(), cell("gigpo", areas)]
    assert guide.best_of(found, "outcome") == ("gigpo", alone)
    several = [cell(name, [0.4, 0.4, 0.41]) for name in ("rloo", "grpo", "maxrl")]
    assert guide.best_of([*found, *several], "outcome") == guide.NONE


def test_nothing_can_be_gained_where_what_a_row_strives_for_gains_nothing() -> None:
    found = [*references(starts=0.45), cell("reverse_curriculum", [0.3, 0.5, 0.4]), cell("ppo", [0.3, 0.5, 0.4])]
    assert guide.best_of(found, "starts") == guide.NOTHING
    assert guide.best_of(found, "critic") == guide.NONE
    closed = references(exact=0.45, starts=0.4, judged=0.48)
    assert {guide.best_of(closed, kind) for kind in ("outcome", "oracle", "judge", "starts")} == {guide.NOTHING}
    assert guide.best_of(references(), "outcome") == guide.UNKNOWN


def test_a_judge_counts_with_the_errors_of_its_row() -> None:
    others = [cell(JUDGED, [0.9] * 3, oracle_error=0.3), cell(JUDGED, [0.95] * 3, oracle_error=0.1, repeats=True)]
    found = [*references(), *others[:1], cell(JUDGED, [0.5, 0.52, 0.51], oracle_error=fields.JUDGE_ERROR), *others]
    name, gain = guide.best_of(found, "judge")
    assert (name, round(gain.mean, 6)) == (JUDGED, 0.1)


def test_the_line_is_where_the_gain_of_verdicts_is_0() -> None:
    own = fields.own_error(MIDDLE)
    areas = {0.5: 0.51, 1.0: 0.4, 2.0: 0.3}  # gains of .1, -.01 and -.11
    judges = [
        cell(JUDGED, [area - 0.01, area + 0.01, area], oracle_error=round(ratio * own, 4), repeats=again)
        for ratio, area in areas.items()
        for again in (False, True)
        if again or ratio < 2
    ]
    page = guide.which_method([*references(), *judges], "a command").replace("\n", " ")
    assert "as long as the judge errs less than 0.95 [0.95, 0.95] times as often as the policy" in page
    assert "In a table the line" not in page
    assert f"| `{LADDER}` | {MIDDLE.said} | {own:.2f} | repeated | +0.19 [" in page
    assert "| +0.10 [+0.10, +0.10] | -0.01 [-0.01, -0.01] | -0.11 [-0.11, -0.11] | 0.95 x |" in page
    assert "No judges with errors were measured." in guide.which_method(references(), "a command")


def test_the_ends_of_a_line_are_where_those_of_the_gains_interval_are_0() -> None:
    gains = ((0.2, 0.1, 0.3), (0.1, -0.1, 0.3), (-0.1, -0.3, 0.1), (-0.3, -0.4, -0.2))
    known = [Interval(mean=mean, low=low, high=high, confidence=0.95, n=10) for mean, low, high in gains]
    gained = dict(zip((0.0, 0.5, 1.0, 2.0), known, strict=True))
    assert [guide.line_of(gained, end) for end in ("mean", "low", "high")] == pytest.approx([0.75, 0.25, 4 / 3])
    assert guide.line_of({0.0: known[0], 1.0: known[0]}) == math.inf


def test_the_line_is_0_where_verdicts_never_pay() -> None:
    lost, unsure = (Interval(mean=-0.1, low=-0.2, high=high, confidence=0.95, n=10) for high in (0.0, 0.1))
    assert guide.line_of({0.0: lost, 0.5: lost}) == guide.line_of({0.0: unsure, 0.5: unsure}) == 0.0
    assert guide.line_of({0.0: unsure, 0.5: lost}, "high") == 0.5


def test_a_guide_is_made_of_cells_of_its_runs_critic_updates_and_options(tmp_path: Path) -> None:
    areas = {BASE: BASES, EXACT: [0.7, 0.72, 0.71], "ppo": [0.6, 0.62, 0.61]}
    place: dict[str, Any] = {"problem": LADDER, "dials": dict(MIDDLE.dials)}
    run = [
        (cells.Job(method=name, **place, critic="taught" if name == "ppo" else "exact"), areas[name]) for name in areas
    ]
    settings: list[dict[str, Any]] = [{"critic": "exact"}, {"updates": 99}, {"options": {"lam": 0.5}}]
    others = [(cells.Job(method="ppo", **place, **{"critic": "taught", **one}), [0.9] * 3) for one in settings]
    lines = [json.dumps({**cell(job.method, own), **job.named, "key": job.key}) for job, own in run + others]
    (tmp_path / "cells.jsonl").write_text("\n".join(lines) + "\n")
    plots.write_pages(tmp_path, [job for job, _ in run], "taught", "a command")
    assert f"| {fields.KINDS['critic']} | not measured | `ppo` +0.20 [" in (tmp_path / "index.md").read_text()


def test_the_outcome_by_another_name_is_no_method_of_a_row() -> None:
    same, other = cell("reinforce_plus_plus", [one + 1e-7 for one in BASES]), cell("gigpo", [0.52, 0.62, 0.6])
    assert guide.best_of([*references(), same], "outcome") == guide.UNKNOWN
    name, gain = guide.best_of([*references(), same, other], "outcome")
    assert (name, gain) == ("gigpo", paired_difference(other["areas"], BASES))


def test_cells_of_other_numbers_of_seeds_are_left_out_of_a_field() -> None:
    few = [cell(JUDGED, [0.9, 0.9]), cell("ppo", [0.9, 0.9])]
    for found in ([*few, *references()], [*references(), *few]):
        assert fields.on_rung(found, MIDDLE) == references()


def test_rows_that_say_the_same_are_one() -> None:
    found = references() + [cell(name, [0.3, 0.32, 0.3]) for name in ("rloo", "ppo", "replay_loo")]
    rows = guide.fields_of([*found, cell(JUDGED, [0.8, 0.82, 0.81], oracle_error=fields.JUDGE_ERROR)])
    outcome, judge = (fields.KINDS[kind] for kind in ("outcome", "judge"))
    assert [*rows] == [
        f"{outcome}; {fields.KINDS['critic']}; {fields.KINDS['replays']}",
        fields.KINDS["oracle"],
        judge,
    ]
    assert rows[judge][1] != guide.NONE


def test_the_page_has_a_table_of_fields_problems_and_headroom() -> None:
    vote = next(rung for rung in RUNGS if rung.problem == "vote")
    found = [*references(), cell("ppo", [0.8, 0.82, 0.81]), *references(vote), cell("rloo", [0.6] * 3, vote)]
    for rung in LADDERS.values():
        found += references(rung, exact=0.4, starts=0.4, judged=0.4) if rung != MIDDLE else []
    page = guide.which_method(found, "a command", "there/")
    columns = [f"{length} decisions, {100 * success:g} % success" for length, success in FIELDS]
    assert f"| You have | {' | '.join(columns)} |" in page
    nothing = f"**{guide.NOTHING}**"
    assert f"| a learned critic | {nothing} | `ppo` +0.40 [+0.40, +0.40] | {nothing} |" in page
    assert 'srcset="there/fields_narrow.png"' in page
    gain, none = "+0.19 [+0.17, +0.21]", "-0.01 [-0.03, +0.01]"
    assert f"| `vote` | 5 decisions | 0.41 |{3 * f' {gain} |'} only an outcome or rewards: `rloo` {gain}<br>" in page
    assert f"| `{LADDER}` | 4 decisions, 10 % | 0.41 |{3 * f' {none} |'} {nothing} |" in page
    assert f"Of {len(found)} cells {len(found)} took 0.5." in page.replace("\n", " ")
    assert "<picture>" not in guide.which_method(found, "a command")


def test_names_of_cells_are_no_markup() -> None:
    name = "a|<img src=x onerror=alert(1)>:[b](javascript:1)`"
    own = Rung(name)
    found = [cell(BASE, BASES, own), cell(name, [0.8, 0.82, 0.81], own), cell("rloo", [0.8, 0.8, 0.9], own)]
    refused = {**cell("ppo", [], own), "refused": "not\n\n<script>"}
    for page in (guide.tables([*found, refused]), guide.which_method(found, f"hf-credit bench --method {name}")):
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(page)
        inner = [one for token in tokens for one in (token, *(token.children or ()))]
        assert not {one.type for one in inner} & {"html_block", "link_open", "image"}
        assert {one.content for one in inner if one.type == "html_inline"} <= {"<br>"}


def test_pictures_are_as_wide_as_the_pages_they_are_for(tmp_path: Path) -> None:
    drawn = plots.draw([*references(), cell("ppo", [0.8, 0.82, 0.81])], tmp_path)
    sizes = {file.name: int.from_bytes(file.read_bytes()[16:20], "big") for file in drawn}  # where a PNG has it
    assert sizes == {"fields.png": 2000, "fields_narrow.png": 780}
    assert plots.draw(references(Rung("vote")), tmp_path) == []


def test_tables_of_cells_are_written_without_the_progress_of_another_library(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = cells.Job(method=JUDGED, problem=MIDDLE.problem, dials=MIDDLE.dials).key
    guide.write_parquet([{"key": key, "options": {}, **one} for one in references()], tmp_path / "cells.parquet")
    known = cells.take_up(tmp_path)
    assert [one["method"] for one in known.values()] == [JUDGED]  # of equal keys the last
    assert capfd.readouterr().err == ""
