"""The page of a leaderboard as a Space, by command, and what is listed of its season."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi

from hf_credit.cli import main
from hf_credit.hub import load_results
from hf_credit.hub.leaderboard.opening import open_season
from hf_credit.hub.leaderboard.seasons import SeasonSecret, SeasonTask
from hf_credit.hub.leaderboard.sources import Hub
from hf_credit.hub.leaderboards import leaderboard_files
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
            main(["publish", "leaderboard", *words])
        return error.value.code

    assert ended("me/benchmark", "me/board", "--dry-run") == 1
    assert "there is no such repository" in capsys.readouterr().err
    task = SeasonTask(name="sudoku", spec={"environment": "sudoku", "environment_options": {"size": 4}}, public=2)
    there = Hub(endpoint=hub.url, token=token)
    open_season(there, "first", "me/benchmark", "me/results", SeasonSecret.new(), [task])
    api = HfApi(endpoint=hub.url, token=token)
    assert not ended("me/benchmark", "me/board", "--dry-run")
    assert not api.repo_exists("me/board", repo_type="space")
    assert not ended("me/benchmark", "me/board")
    assert "(public)" in capsys.readouterr().out
    assert api.get_space_variables("me/board")["HF_CREDIT_BENCHMARK"].value == "me/benchmark"
    assert set(leaderboard_files()) <= set(api.list_repo_files("me/board", repo_type="space"))
    results = load_results("me/benchmark")
    assert (results.season.name, results.rows) == ("first", ())
    with pytest.raises(ValueError, match=r"me/results must hold a season, got no season\.json; name another"):
        load_results("me/results")
