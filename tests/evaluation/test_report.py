from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from hf_credit.evaluation.report import (
    Comparison,
    Report,
    budget,
    compare,
    markdown,
    report_of,
    results_rows,
    shown,
    table,
    write_report,
)
from hf_credit.evaluation.results import EpisodeRecord, EvalResults
from hf_credit.evaluation.runs import Run
from hf_credit.evaluation.statistics import Interval
from hf_credit.words import plain


def interval(mean: float, low: float, high: float) -> Interval:
    return Interval(mean=mean, low=low, high=high, confidence=0.95, n=10)


def results(successes: list[float], ending: str = "finished") -> EvalResults:
    return EvalResults(
        records=tuple(
            EpisodeRecord(seed=seed, ending=ending, outcome=success, metrics={"success": success}, turns=3, tokens=21)
            for seed, success in enumerate(successes)
        )
    )


def run(name: str, learning_rate: float) -> Run:
    return Run(
        name=name,
        config={"learning_rate": learning_rate, "beta": 0.0},
        facts={"versions": {"python": "3.11.7", "torch": "2.13.0"}},
        log=(
            {"step": 1, "success": 0.0, "tokens/generated": 100.0},
            {
                "step": 2,
                "success": 0.5,
                **{f"budget/{name}": 8 for name in ("scoring_events", "completion_tokens", "tokens")},
            },
        ),
    )


@pytest.fixture
def report() -> Report:
    played = {"base": results([0.0] * 8, "invalid_action"), "trained": results([1.0] * 6 + [0.0] * 2)}
    return Report(
        title="A comparison",
        introduction="What was done.",
        runs=[run("first", 0.1), run("second", 0.2)],
        results=played,
        comparisons=compare(played, "trained", "base"),
        notes=["Read with care."],
    )


# Verdicts and tables


@pytest.mark.parametrize(
    ("low", "high", "part"),
    [
        (0.1, 0.3, "[+10.0, +30.0] excludes 0, so new is better"),
        (-0.3, -0.1, "[-30.0, -10.0] excludes 0, so new is worse"),
        (-0.1, 0.3, "[-10.0, +30.0] includes 0, so the difference is not significant over these tasks"),
        (0.0, 0.3, "includes 0"),
    ],
)
def test_the_verdict_says_whether_the_interval_excludes_zero(low: float, high: float, part: str) -> None:
    comparison = Comparison(of="new", minus="old", metric="success", interval=interval((low + high) / 2, low, high))
    assert part in comparison.conclusion
    assert comparison.excludes_zero == ("excludes" in part)


def played(*outcomes: float | None) -> EvalResults:
    records = (EpisodeRecord(seed=seed, ending="finished", outcome=one) for seed, one in enumerate(outcomes))
    return EvalResults(records=tuple(records))


def test_policies_without_a_rate_are_compared_on_outcomes() -> None:
    (comparison,) = compare({"a": played(1.0, 0.5), "b": played(0.5, 0.0)}, "a", "b")
    assert (comparison.metric, comparison.interval.mean) == ("reward", 0.5)


def test_a_comparison_says_how_many_tasks_have_no_value() -> None:
    policies = {"a": played(1.0, None, 1.0, 0.5), "b": played(0.0, 1.0, 0.0, None)}
    (comparison,) = compare(policies, "a", "b")
    assert (comparison.left_out, comparison.interval.n) == (2, 2)
    assert "without 2 of 4 tasks, in which one has no value;" in comparison.conclusion


@pytest.mark.parametrize(
    ("left_out", "part"), [(1, "so a is better"), (2, "more than a tenth of the tasks is left out")]
)
def test_a_comparison_without_more_than_a_tenth_of_the_tasks_decides_nothing(left_out: int, part: str) -> None:
    one = Comparison(of="a", minus="b", metric="success", interval=interval(0.2, 0.1, 0.3), left_out=left_out)
    assert part in one.conclusion
    assert ("better" in one.conclusion) == (left_out == 1)


def test_policies_without_common_values_are_left_out_of_a_report_in_a_sentence(tmp_path: Path) -> None:
    for name, found in (("a", played(1.0, None)), ("b", played(None, 1.0)), ("c", played(0.0, 1.0))):
        (tmp_path / f"evaluation_{name}.json").write_text(found.to_json())
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    report = report_of([tmp_path])
    assert (len(report.results), report.comparisons) == (3, [])
    text = markdown(report).replace("\\", "")
    assert "evaluation_a and evaluation_b are not compared, since fewer than 2 tasks" in text
    other = EvalResults(records=played(0.0, 1.0).records, about={"setup": {"task": "sudoku"}})
    (tmp_path / "evaluation_a.json").write_text(other.to_json())
    (tmp_path / "evaluation_b.json").write_text(other.to_json())
    assert [(one.of, one.minus) for one in report_of([tmp_path]).comparisons] == [("evaluation_a", "evaluation_b")]


def test_policies_are_compared_on_metrics_of_the_task() -> None:
    (comparison,) = compare({"a": results([1.0, 1.0, 0.0]), "b": results([0.0, 1.0, 0.0])}, "a", "b")
    assert (comparison.of, comparison.minus, comparison.metric) == ("a", "b", "success")
    assert comparison.interval.mean == pytest.approx(1 / 3)


def test_shares_are_shown_in_percent_and_other_numbers_as_they_are() -> None:
    assert shown("success", interval(0.193, 0.16, 0.2288)) == "19.3% [16.0, 22.9], n = 10"
    assert shown("return_first", interval(-0.31, -0.4, -0.2)) == "-0.31 [-0.40, -0.20], n = 10"
    assert shown("turns", interval(2.0, math.nan, math.nan)) == "2.00 no interval, n = 10"


def test_endings_that_never_occurred_are_omitted() -> None:
    rows = [row[0] for row in results_rows({"a": results([1.0, 0.0])})]
    assert "ended: finished" in rows
    assert "ended: invalid action" in rows  # shown even if it never occurred
    assert "ended: truncated" not in rows


def test_a_number_that_one_policy_lacks_is_a_dash() -> None:
    other = EvalResults(records=tuple(EpisodeRecord(seed=seed, ending="error", outcome=0.0) for seed in range(2)))
    rows = {row[0]: row[1:] for row in results_rows({"a": results([1.0, 1.0]), "b": other})}
    assert rows["success rate"] == ["100.0% [34.2, 100.0], n = 2", "-"]


def test_a_bar_in_a_cell_does_not_break_the_table() -> None:
    assert table(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |"


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "a|<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![seen](https://example.org/pixel)",
    "[a][b]",
    "\\<b>\\|<i>",
    "`</td><svg onload=alert(1)>`",
    "&lt;b&gt; &amp;",
    "*strong* _weak_ __init__",
    "a\n\n# heading",
)


def rendered(text: str) -> list[Any]:
    """The tokens of a Markdown text, as GitHub reads it."""
    return [
        inner
        for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        for inner in (token, *(token.children or ()))
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_shows_a_text_as_it_is(name: str) -> None:
    tokens = rendered(table([name], [[name, "b"], ["c", name]]))
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "code_inline", "em_open", "strong_open"}
    assert (
        "".join(token.content for token in tokens if token.type.startswith("text")).count(name.replace("\n", " ")) == 2
    )
    assert sum(token.type == "th_open" for token in tokens) == 1


def test_names_of_a_strangers_log_and_files_are_no_markup_in_a_report() -> None:
    log = tuple({"step": step, **dict.fromkeys(HOSTILE, 1.0), f"replies/{HOSTILE[0]}/trained": 1.0} for step in (1, 2))
    runs = [Run(name=name, log=log, facts={"versions": {name: name}}, config={name: 1}) for name in HOSTILE[:2]]
    played = dict.fromkeys(HOSTILE, results([0.0, 1.0]))
    text = markdown(
        Report(title=HOSTILE[0], runs=runs, results=played, comparisons=compare(played, HOSTILE[0], HOSTILE[2]))
    )
    kinds = {token.type for token in rendered(text)}
    assert not kinds & {"html_inline", "html_block", "link_open", "code_inline", "strong_open"}
    (curves,) = (token for token in rendered(text) if token.type == "image")
    assert curves.attrs["src"] == "learning_curves.png"


def test_a_budget_counts_updates_episodes_and_tokens() -> None:
    log = ({"step": 1, "budget/scoring_events": 4, "budget/completion_tokens": 40}, {"step": 3})
    assert budget(Run(name="r", log=log)) == {"updates": 3, "episodes": 4, "generated_tokens": 40}
    assert budget(Run(name="r", log=({"step": 2},)))["generated_tokens"] is None


def test_both_tables_of_a_report_have_the_generated_tokens_of_the_ledger() -> None:
    # Of a method that plays continuations: `tokens/generated` is only what it is trained on.
    log = ({"step": 1, "tokens/generated": 82.0, "budget/scoring_events": 24.0, "budget/tokens": 900.0}, {"step": 2})
    log[0]["budget/completion_tokens"] = 326.0
    page = markdown(Report(title="r", runs=[Run(name="vineppo", log=log)]))
    assert "| vineppo | 2 | 24 | 326 |" in page
    assert "| vineppo | 24 | 900 | 326 |" in page


def test_an_end_that_is_not_known_is_null_in_strict_json() -> None:
    values = plain(interval(1.0, math.nan, math.nan))
    assert json.dumps(values, allow_nan=False)
    assert (values["mean"], values["low"]) == (1.0, None)


# The page


def test_the_page_has_every_part(report: Report) -> None:
    page = markdown(report)
    for part in (
        "# A comparison",
        "What was done.",
        "| success rate | 0.0% [0.0, 32.4], n = 8 | 75.0% [",
        "trained minus base, success rate: +75.0 points",
        "Read with care.",
        "| first | 2 | 8 | 8 |",
        "![Learning curves](learning_curves.png)\n\nThin lines: logged values. Thick lines: moving averages",
        "| success | 0.5 | 0.5 |",
        "| torch | 2.13.0 |",
    ):
        assert part in page


def test_an_input_of_the_method_that_no_episode_had_is_told() -> None:
    log = tuple({"step": step, "inputs/verdicts": 0.0, "inputs/speed": step / 2} for step in range(2))
    text = markdown(Report(title="A run", runs=[Run(name="first", log=log)]))
    assert "first: The method reads verdicts, which no episode had" in text
    assert "speed, which" not in text


def test_settings_of_further_runs_are_shown_only_if_different(report: Report) -> None:
    page = markdown(report)
    assert page.count("beta: 0.0") == 1
    assert "Settings of second that differ from first\n\n```yaml\nlearning_rate: 0.2\n```" in page


def test_a_report_is_a_folder(report: Report, tmp_path: Path) -> None:
    path = write_report(report, tmp_path / "deep" / "report")
    assert path.read_text() == markdown(report)
    assert (path.parent / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((path.parent / "results.json").read_text())
    assert numbers["evaluations"]["trained"]["metrics"]["success"]["mean"] == 0.75
    assert numbers["differences"][0]["excludes_zero"] is True
    assert numbers["budgets"]["first"]["generated_tokens"] == 8
    assert numbers["runs"]["second"]["config"]["learning_rate"] == 0.2


def test_a_report_without_runs_or_evaluations_is_just_shorter(tmp_path: Path) -> None:
    path = write_report(Report(title="Empty"), tmp_path)
    assert path.read_text() == "# Empty\n"
    assert not (tmp_path / "learning_curves.png").exists()
