"""Leaderboards on the Hub: the page of a season as a Space, and what is listed of it."""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

from hf_credit.hub.client import connect
from hf_credit.hub.leaderboard.results import Results
from hf_credit.hub.leaderboard.sources import Hub
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.retries import retried

BENCHMARK_VARIABLE = "HF_CREDIT_BENCHMARK"
"""Of the Space, from which the page knows its season."""

_FILES = ("README.md", "app.py", "requirements.txt")


def leaderboard_files() -> dict[str, bytes]:
    """The files of the page as a Space, by their names."""
    folder = importlib.resources.files("hf_credit.hub") / "space"
    return {name: (folder / f"leaderboard_{name}.tpl").read_bytes() for name in _FILES}


def publish_leaderboard(
    benchmark: str,
    repo: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    private: bool = False,
    dry_run: bool = False,
) -> Published:
    """Publishes the page of a season as a Space, and names the season in its variable `HF_CREDIT_BENCHMARK`.

    Args:
        benchmark: owner/name of the dataset of the season.
        repo: owner/name of the Space.
        token, endpoint, private, dry_run: as for `hf_credit.hub.publishing.publish`.

    Raises:
        ValueError: there is no such season; and as for `publish`.
        HubError: as for `publish`.
    """
    Hub(endpoint=endpoint, token=token).season(benchmark)
    done = publish(
        leaderboard_files(),
        repo,
        repo_type="space",
        space_sdk="gradio",
        token=token,
        endpoint=endpoint,
        private=private,
        dry_run=dry_run,
        message=f"Publish the leaderboard of {benchmark}",
    )
    if not dry_run:
        api = connect(endpoint, token)
        retried(lambda: api.add_space_variable(repo, BENCHMARK_VARIABLE, benchmark), f"setting a variable of {repo}")
    return done


def load_results(benchmark: str, *, token: str | None = None, endpoint: str | None = None) -> Results:
    """What is listed of a season now: entries with what a verifier found of them, and their ranks.

    Args:
        benchmark: owner/name of the dataset of the season.
        token, endpoint: as for `hf_credit.hub.loading.fetch`.

    Raises:
        ValueError: there is no such season.
        HubError: it could not be read.
    """
    hub = Hub(endpoint=endpoint, token=token)
    return hub.results(hub.season(benchmark)[0])


if __name__ == "__main__":
    for file_name, content in leaderboard_files().items():
        (Path(sys.argv[1]) / file_name).write_bytes(content)
