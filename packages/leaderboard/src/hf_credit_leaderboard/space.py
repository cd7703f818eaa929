"""The page of a season as a Space."""

from __future__ import annotations

import sys
from pathlib import Path

from hf_credit.files import write
from hf_credit.hub.client import connect, repo_url
from hf_credit.hub.publishing import Published
from hf_credit.hub.retries import retried
from hf_credit.hub.spaces import templates
from hf_credit.hub.wheel import WHEEL, own_wheel
from hf_credit_leaderboard.sources import Hub

BENCHMARK_VARIABLE = "HF_CREDIT_BENCHMARK"
"""The variable of the Space that names the dataset of the season."""


def leaderboard_files(url: str = "https://huggingface.co/spaces/OWNER/SPACE") -> dict[str, bytes]:
    """Returns the files of the page as a Space, by name.

    Args:
        url: of the Space, from which its requirements take the wheel: they are installed before its files are there.
    """
    texts = templates(Path(__file__).with_name("space_files"))
    wheel = f"{url}/resolve/main/{WHEEL}"
    return {name: text.replace("$wheel", wheel).encode() for name, text in texts.items()}


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
    api, message = connect(endpoint, token), f"Publish the leaderboard of {benchmark}"
    files = {**leaderboard_files(repo_url(api, repo, "space")), **own_wheel()}
    done = hub.publish(files, repo, "space", space_sdk="gradio", private=private, dry_run=dry_run, message=message)
    if not dry_run:
        retried(lambda: api.add_space_variable(repo, BENCHMARK_VARIABLE, benchmark), f"setting a variable of {repo}")
    return done


if __name__ == "__main__":
    for file_name, content in leaderboard_files().items():
        write(Path(sys.argv[1]) / file_name, content)
