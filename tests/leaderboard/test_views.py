"""What the page shows: numbers equal to an independent computation, and nothing of an entry is code."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hf_credit.http_guard import httpx
from hf_credit_leaderboard import views
from hf_credit_leaderboard.results import Results, rankings_table, read_results
from hf_credit_leaderboard.sources import Source

from .conftest import CELLS, FORMULA, HOSTILE, Listed


def rows_of(results: Results, board: str) -> list[list[Any]]:
    return views.board_table(results, board)[1]


@pytest.fixture(scope="module")
def results(listed: Listed) -> Results:
    return read_results(listed.folder, listed.season)


def test_the_numbers_of_the_board_are_those_of_the_outcomes(results: Results, listed: Listed) -> None:
    rows = {row[1]: row for row in rows_of(results, "sudoku")}
    for name in ("steady", "quick", "slow", HOSTILE, FORMULA):
        assert rows[name][2] == round(float(listed.outcomes[name].mean()), 4)
    assert [row[1] for row in rows_of(results, "sudoku")][:1] == ["steady"]
    assert rows["copy"][0].startswith("copy of")
    assert rows["claimed"][0] == "not verified"
    assert rows["quick"][4] == "1 (one seed)"


def test_ranks_are_those_of_tests_made_by_hand(results: Results, listed: Listed) -> None:
    """Wilcoxon's sign test would do as well; here scipy's own permutation test and Holm's steps, written out."""
    names = ["steady", "quick", "slow", HOSTILE, FORMULA]
    means = {name: listed.outcomes[name].mean(axis=0) for name in names}
    tests = []
    for place, a in enumerate(names):
        for b in names[place + 1 :]:
            found = stats.permutation_test(
                (means[a] - means[b],), np.mean, permutation_type="samples", n_resamples=9_999, rng=1
            )
            tests.append((found.pvalue, a, b))
    tests.sort()
    better: set[tuple[str, str]] = set()
    for place, (p, a, b) in enumerate(tests):
        if p * (len(tests) - place) > 0.05:
            break
        better.add((a, b) if means[a].mean() > means[b].mean() else (b, a))
    for one in results.ranks("sudoku"):
        name = results.row(one.entry).entry.name
        assert one.best == 1 + sum(loser == name for _, loser in better)
        assert one.worst == len(names) - sum(winner == name for winner, _ in better)


def compared(results: Results, listed: Listed, *names: str) -> dict[str, str]:
    return dict(views.comparison_table(*(results.row(listed.ids[name]) for name in names)))


def test_intervals_and_p_values_are_those_of_scipy(results: Results, listed: Listed) -> None:
    rows = {row[1]: row for row in rows_of(results, "sudoku")}
    outcomes = {name: np.asarray(listed.outcomes[name]) for name in ("steady", "quick", "slow")}
    # Of one seed tasks are drawn alone, as scipy does.
    tasks = stats.bootstrap((outcomes["quick"][0],), np.mean, method="percentile", rng=1).confidence_interval
    assert [float(one) for one in rows["quick"][3].strip("[]").split(",")] == pytest.approx([*tasks], abs=0.03)
    # Of three, seeds and tasks, written out.
    draws = np.random.default_rng(1)
    table = outcomes["steady"]
    means = [table[draws.integers(3, size=3)][:, draws.integers(40, size=40)].mean() for _ in range(4000)]
    expected = np.quantile(means, [0.025, 0.975])
    assert [float(one) for one in rows["steady"][3].strip("[]").split(",")] == pytest.approx([*expected], abs=0.02)
    found = compared(results, listed, "quick", "slow")
    differences = outcomes["quick"].mean(axis=0) - outcomes["slow"].mean(axis=0)
    tested = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=9_999, rng=1)
    assert float(found["p (paired permutation test)"]) == pytest.approx(tested.pvalue, abs=0.03)
    paired = stats.bootstrap((differences,), np.mean, method="percentile", rng=1).confidence_interval
    told = [float(one) for one in found["95 % interval"].strip("[]").split(",")]
    assert told == pytest.approx([*paired], abs=0.03)


def test_a_board_without_entries_says_so(leaderboard_page: Any, results: Results) -> None:
    about, shown = leaderboard_page.board_shown(results, "nothing yet")
    assert "This board has no entries yet" in about
    assert len(shown.data) == 0


def test_a_comparison_counts_wins_ties_and_losses(results: Results, listed: Listed) -> None:
    found = compared(results, listed, "steady", "slow")
    differences = listed.outcomes["steady"].mean(axis=0) - listed.outcomes["slow"].mean(axis=0)
    assert found["mean difference (A - B)"] == f"{differences.mean():+.4f}"
    counted = {"tasks on which A is better": differences > 0, "ties": differences == 0}
    counted |= {"tasks on which B is better": differences < 0}
    assert {name: found[name] for name in counted} == {name: str(one.sum()) for name, one in counted.items()}
    assert found["training seeds"] == "2 or more"
    for name in ("steady", "claimed"):
        with pytest.raises(ValueError, match=r"the same one|must be verified"):
            compared(results, listed, "steady", name)


def test_files_that_break_a_rule_are_problems_and_not_errors(results: Results, listed: Listed, tmp_path: Path) -> None:
    (tmp_path / "entries").mkdir()
    (tmp_path / "entries" / "bad.json").write_bytes(b"{")
    name = listed.ids["steady"]
    content = (listed.folder / f"entries/{name}.json").read_bytes()
    (tmp_path / "entries" / "moved.json").write_bytes(content)
    found = read_results(tmp_path, listed.season)
    assert found.rows == ()
    assert [one.partition(":")[0] for one in found.problems] == ["bad", "moved"]


def test_rankings_are_derived(results: Results, listed: Listed) -> None:
    rows = rankings_table(results)
    steady = next(row for row in rows if row["name"] == "steady")
    assert steady["mean"] == pytest.approx(float(listed.outcomes["steady"].mean()))
    assert len(rows) == len(results.rows)


def test_a_source_keeps_what_it_read_when_the_hub_is_down(results: Results) -> None:
    answers: list[Any] = [OSError("down"), results, OSError("down")]

    def read() -> Results:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    source = Source(read)
    assert source.load() is None
    assert source.load() is results
    assert source.trouble == ""
    assert source.load() is results
    assert "down" in source.trouble


def test_the_command_line_prints_boards_with_hostile_names_as_they_are(
    results: Results, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hf_credit_leaderboard.cli.leaderboard import print_boards

    monkeypatch.setenv("COLUMNS", "300")
    print_boards(results)
    printed = capsys.readouterr().out
    assert HOSTILE in printed
    assert "nothing yet" not in printed


def test_credit_is_what_the_bench_measured_at_the_start_without_dials(leaderboard_page: Any, results: Results) -> None:
    measured = dataclasses.replace(results, cells=CELLS)
    _, rows = views.credit_table(CELLS, "key")
    assert rows == [["exact_advantage", 1.0, 0.0, 0.5], ["grpo", 0.25, 12.5, 0.5]]
    assert views.credit_table(CELLS, "chain")[1] == [["rloo", None, 0.0, None]]
    about, shown = leaderboard_page.credit_shown(measured, "key")
    assert "cost of signal" in about
    assert len(shown.data) == 2
    assert "names no cells" in leaderboard_page.credit_shown(results, None)[0]


def test_the_space_starts_the_page_of_the_benchmark_that_it_is_told(
    leaderboard_page: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import runpy

    import yaml

    folder = root / "hub_assets" / "leaderboard"
    front = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert (front["sdk"], front["app_file"]) == ("gradio", "app.py")
    assert runpy.run_path(str(folder / "app.py"))["from_environment"] is leaderboard_page.from_environment
    monkeypatch.delenv("HF_CREDIT_BENCHMARK", raising=False)
    with pytest.raises(ValueError, match="HF_CREDIT_BENCHMARK=owner/name"):
        leaderboard_page.from_environment()


# Gradio leaves sockets and loops of its server to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning")
def test_the_page_takes_no_files(
    leaderboard_page: Any, listed: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    app = leaderboard_page.build(listed.source())
    try:
        url = leaderboard_page.launch(app, block=False)
        answer = httpx.post(f"{url}gradio_api/upload", files={"files": ("a", b"xx")})
        assert answer.status_code == 413
    finally:
        app.close(verbose=False)
        gc.collect()
