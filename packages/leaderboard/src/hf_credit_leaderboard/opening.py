"""Opens and closes seasons: their boards, and the card of the dataset."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from hf_credit.hub.cards import rendered
from hf_credit.hub.client import connect
from hf_credit.hub.loading import NoFiles
from hf_credit.hub.publishing import Repository
from hf_credit.policies.micro import CHAT_TEMPLATE
from hf_credit.tasks import TaskSpec
from hf_credit_leaderboard.inputs import to_json
from hf_credit_leaderboard.seasons import SEASON_FILE, Season, SeasonSecret, SeasonTask
from hf_credit_leaderboard.sources import Hub
from hf_credit_leaderboard.weights import template_digest

STANDARD_BOARDS: tuple[tuple[Literal["micro", "full"], str, str, dict[str, Any]], ...] = (
    ("micro", "sudoku 4x4", "sudoku", {"size": 4, "blanks": 8, "notation": "named"}),
    ("micro", "minesweeper 4x4", "minesweeper", {"rows": 4, "columns": 4, "mines": 3}),
    ("micro", "tic-tac-toe", "tic_tac_toe", {"opponent": "mixture", "opponent_simulations": 100}),
    ("micro", "guess numbers, brief", "guess_numbers", {"digits": 3, "turns": 6, "wording": "brief"}),
    ("micro", "relay", "relay", {"size": 10}),
    ("micro", "hinted relay", "hinted_relay", {"size": 8}),
    ("micro", "vote", "sum_vote", {"size": 6}),
    ("full", "sudoku 9x9", "sudoku", {"size": 9}),
    ("full", "minesweeper 5x5", "minesweeper", {}),
    ("full", "guess numbers", "guess_numbers", {}),
)
"""Size, board, task and options of the environments and collaborations that generate their own tasks."""


def standard_boards(public: int = 128, secret: int = 128) -> tuple[SeasonTask, ...]:
    """Returns the boards of `STANDARD_BOARDS`, each with this many public and secret instances."""
    return tuple(
        SeasonTask(name=name, spec=_complete(TaskSpec.of_name(task, options)), public=public, secret=secret, size=size)
        for size, name, task, options in STANDARD_BOARDS
    )


def open_season(
    hub: Hub,
    name: str,
    benchmark: str,
    results: str,
    secret: SeasonSecret,
    tasks: Sequence[SeasonTask],
    cells: str = "",
) -> Season:
    """Publishes a season: its dataset, and an empty one for results. It accepts the chat template of micro policies.

    Args:
        hub: the Hub, with an account that may create both datasets.
        benchmark, results: the two datasets.
        secret: the salt and the key, which are not published.
        cells: the dataset of benchmark cells that the page shows; "" for none.

    Raises:
        ValueError: a board is invalid, or the benchmark has an open season.
    """
    repo, commit = Repository(connect(hub.endpoint, hub.token), benchmark, "dataset"), None
    if repo.ask(repo.api.repo_exists):
        with contextlib.suppress(NoFiles):
            known, commit = hub.season(benchmark)
            if known.open:
                raise ValueError(f"{benchmark} must have no open season, got {known.name!r}; close it first.")
    season = Season(
        name=name,
        benchmark=benchmark,
        results=results,
        tasks=tuple(tasks),
        cells=cells,
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
        templates=(template_digest(CHAT_TEMPLATE),),
    )
    text = f"---\ntags: [hf-credit, leaderboard]\n---\n\n# Results of the season {name} of {benchmark}\n"
    hub.publish({"README.md": text.encode("utf-8")}, results, "dataset", message="Begin")
    _publish(hub, season, f"Open the season {name}", commit)
    return season


def close_season(hub: Hub, benchmark: str, secret: SeasonSecret) -> Season:
    """Closes a season: it accepts no more entries, and its salt becomes public.

    Raises:
        ValueError: the secret belongs to another season.
    """
    season, commit = hub.season(benchmark)
    closed = dataclasses.replace(season, open=False, salt=secret.salt)
    _publish(hub, closed, f"Close the season {season.name}", commit)
    return closed


def accept_templates(hub: Hub, benchmark: str, digests: Iterable[str]) -> Season:
    """Adds chat templates, which a maintainer has read, to a season, so that entries that use them are ranked."""
    season, commit = hub.season(benchmark)
    updated = dataclasses.replace(season, templates=tuple(dict.fromkeys([*season.templates, *digests])))
    _publish(hub, updated, "Accept a chat template", commit)
    return updated


def board_lines(season: Season) -> list[str]:
    """Returns one line per board with its numbers of tasks."""
    return [f"{one.name}: {one.public} public and {one.secret} secret tasks ({one.size})" for one in season.tasks]


def _publish(hub: Hub, season: Season, message: str, parent: str | None) -> None:
    tags = {"tags": ["hf-credit", "leaderboard", "credit-assignment"]}
    card = rendered(Path(__file__).with_name("season.md"), tags, season=season, boards=board_lines(season))
    files = {SEASON_FILE: to_json(season), "README.md": card.encode("utf-8")}
    hub.publish(files, season.benchmark, "dataset", message=message, parent=parent)


def _complete(spec: TaskSpec) -> dict[str, Any]:
    """Writes out every option of a task, so that a later change of defaults does not change a season."""
    return {name: value for name, value in spec.complete().to_dict().items() if value not in (None, {})}
