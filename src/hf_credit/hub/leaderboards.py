"""Leaderboards on the Hub: the page of a season as a Space, and the listed entries."""

from __future__ import annotations

import sys
from pathlib import Path

from hf_credit.files import write
from hf_credit.hub.client import connect
from hf_credit.hub.leaderboard.results import Results
from hf_credit.hub.leaderboard.sources import Hub
from hf_credit.hub.publishing import Published
from hf_credit.hub.retries import retried
from hf_credit.hub.spaces import templates

BENCHMARK_VARIABLE = "HF_CREDIT_BENCHMARK"
"""The variable of the Space that names the dataset of the season."""


def leaderboard_files() -> dict[str, bytes]:
    """Returns the files of the page as a Space, by name."""
    return {name: text.encode() for name, text in templates("leaderboard").items()}


def publish_leaderboard(
    benchmark: str,
    repo: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    private: bool = False,
    dry_run: bool = False,
) -> Published:
    """Publishes the page of a season as a Space, and sets its variable `HF_CREDIT_BENCHMARK` to the season.

    Args:
        benchmark: owner/name of the dataset of the season.
        repo: owner/name of the Space.
        token, endpoint, private, dry_run: as for `hf_credit.hub.publishing.publish`.

    Raises:
        ValueError: the dataset holds no season; and as for `publish`.
        HubError: as for `publish`.
    """
    hub = Hub(endpoint=endpoint, token=token)
    hub.season(benchmark)
    message = f"Publish the leaderboard of {benchmark}"
    done = hub.publish(
        leaderboard_files(), repo, "space", space_sdk="gradio", private=private, dry_run=dry_run, message=message
    )
    if not dry_run:
        api = connect(endpoint, token)
        retried(lambda: api.add_space_variable(repo, BENCHMARK_VARIABLE, benchmark), f"setting a variable of {repo}")
    return done


def load_results(benchmark: str, *, token: str | None = None, endpoint: str | None = None) -> Results:
    """Loads the listed entries of a season with their records and ranks.

    Args:
        benchmark: owner/name of the dataset of the season.
        token, endpoint: as for `hf_credit.hub.loading.fetch`.

    Raises:
        ValueError: the dataset holds no season.
        HubError: the Hub refused, or failed after all retries.
    """
    hub = Hub(endpoint=endpoint, token=token)
    return hub.results(hub.season(benchmark)[0])


if __name__ == "__main__":
    for file_name, content in leaderboard_files().items():
        write(Path(sys.argv[1]) / file_name, content)
