"""The page of a leaderboard as a Space, by command, and what is listed of a season and the cells that it names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from hf_credit.cli import main
from hf_credit.hub.retries import Conflict
from hf_credit_bench import cells, publish_cells
from hf_credit_leaderboard.opening import accept_templates, close_season, open_season
from hf_credit_leaderboard.seasons import Season, SeasonSecret, SeasonTask
from hf_credit_leaderboard.sources import Hub
from hf_credit_leaderboard.space import leaderboard_files
from local_hub.running import Served

FOLDER = Path(__file__).resolve().parents[2] / "hub_assets" / "leaderboard"


def test_the_committed_folder_is_what_is_published() -> None:
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == leaderboard_files(), "run make spaces"


def test_the_page_of_a_season_is_published_with_the_name_of_its_benchmark(
    hub: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = hub.token()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", token)

    def ended(*words: str) -> str | int | None:
        with pytest.raises(SystemExit) as error:
            main(["leaderboard", "publish", *words])
        return error.value.code

    assert ended("me/benchmark", "me/board", "--dry-run") == 1
    assert "there is no such repository" in capsys.readouterr().err
    task = SeasonTask(name="sudoku", spec={"task": "sudoku", "task_options": {"size": 4}}, public=2)
    there = Hub(endpoint=hub.url, token=token)
    open_season(there, "first", "me/benchmark", "me/results", SeasonSecret.new(), [task])
    api = HfApi(endpoint=hub.url, token=token)
    assert not ended("me/benchmark", "me/board", "--dry-run")
    assert not api.repo_exists("me/board", repo_type="space")
    assert not ended("me/benchmark", "me/board")
    assert "(public)" in capsys.readouterr().out
    assert api.get_space_variables("me/board")["HF_CREDIT_BENCHMARK"].value == "me/benchmark"
    assert set(leaderboard_files()) <= set(api.list_repo_files("me/board", repo_type="space"))
    board = Hub(endpoint=hub.url, token=hub.token())
    results = board.results(board.season("me/benchmark")[0])
    assert (results.season.name, results.rows) == ("first", ())
    with pytest.raises(ValueError, match=r"me/results at \w+ must hold season\.json, got no such file"):
        board.season("me/results")


def test_a_season_that_names_cells_has_them_in_its_results_or_says_why_not(hub: Served, tmp_path: Path) -> None:
    spoken = Hub(endpoint=hub.url, token=hub.token())
    todo = cells.jobs(["rloo"], ["chain"], {"length": 2}, seeds=0, updates=8)
    list(cells.run(todo, tmp_path / "cells.jsonl", processes=1))
    publish_cells(tmp_path, "me/cells", endpoint=hub.url, token=hub.token())
    named = {"name": "spring", "benchmark": "me/spring", "results": "me/springs"}
    open_season(spoken, **named, secret=SeasonSecret.new(), tasks=(), cells="me/cells")
    season, _ = spoken.season("me/spring")
    assert [one["method"] for one in spoken.results(season).cells] == ["rloo"]
    (problem,) = spoken.results(dataclasses.replace(season, cells="me/spring")).problems
    assert "me/spring" in problem


def test_an_open_season_is_not_replaced_and_a_closed_one_is(hub: Served) -> None:
    there, named = Hub(endpoint=hub.url, token=hub.token()), {"benchmark": "me/seasons", "results": "me/of_seasons"}
    secret = SeasonSecret.new()
    opened = open_season(there, "spring", **named, secret=secret, tasks=())
    with pytest.raises(ValueError, match="me/seasons must have no open season, got 'spring'; close it first"):
        open_season(there, "summer", **named, secret=SeasonSecret.new(), tasks=())
    assert there.season("me/seasons")[0] == opened
    close_season(there, "me/seasons", secret)
    open_season(there, "summer", **named, secret=SeasonSecret.new(), tasks=())
    assert there.season("me/seasons")[0].name == "summer"


def test_a_template_that_is_accepted_while_a_season_is_closed_does_not_open_it_again(hub: Served) -> None:
    there, secret = Hub(endpoint=hub.url, token=hub.token()), SeasonSecret.new()
    open_season(there, "spring", "me/closing", "me/of_closing", secret, tasks=())
    before = there.season("me/closing")
    close_season(there, "me/closing", secret)

    class Late(Hub):
        """A Hub that read the season before it was closed."""

        def season(self, benchmark: str) -> tuple[Season, str]:
            return before

    with pytest.raises(Conflict, match="must not change during a publication"):
        accept_templates(Late(endpoint=hub.url, token=hub.token()), "me/closing", ["a" * 64])
    assert not there.season("me/closing")[0].open
