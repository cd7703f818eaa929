"""`hf-credit leaderboard demo`: a local Hub, a season, training runs, entries and their verification."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hf_credit.cli.demo import DemoRecipe, few_threads, folders, make_base, train_both
from hf_credit.cli.progress import Progress
from hf_credit.optional_packages import needed

if TYPE_CHECKING:
    from hf_credit_leaderboard.seasons import SeasonSecret
    from hf_credit_leaderboard.sources import Hub

BENCHMARK, RESULTS = "board/benchmark", "board/results"


@dataclass(frozen=True, kw_only=True)
class BoardDemo:
    """The settings of the demo.

    Attributes:
        runs: the training of the policies; its seed is that of the first run.
        seeds: the number of runs, each from a new base policy.
        tasks: the number of public tasks of the board, and of its secret tasks.
    """

    runs: DemoRecipe = field(default_factory=DemoRecipe)
    seeds: int = 3
    tasks: int = 96

    @property
    def board(self) -> str:
        """The name of the board."""
        return f"sudoku {self.runs.size}x{self.runs.size}, {self.runs.blanks} blanks"


SMALL = BoardDemo(runs=DemoRecipe(updates=6), seeds=1, tasks=32)
"""Finishes within minutes."""


@contextlib.contextmanager
def run_leaderboard_demo(
    what: BoardDemo, folder: Path, say: Callable[[str], None] = print
) -> Iterator[tuple[Hub, str]]:
    """Serves a Hub with a season and verified entries until the context ends; yields the Hub and the benchmark's id.

    The policies are those of `hf-credit demo`: the base policy, and those that outcome reward and VPR train from it.
    Each is submitted by a pull request and verified by a process without a token or network access, as an unknown
    user's is.

    Raises:
        ValueError: the folder has files, a training failed, or uploads would go through Xet.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"--output must be a new folder, got {str(folder)!r} with files; name another folder.")
    from hf_credit_leaderboard.opening import open_season
    from hf_credit_leaderboard.seasons import SECRET_FILE, SeasonSecret, SeasonTask
    from hf_credit_leaderboard.sources import Hub

    folder.mkdir(parents=True, exist_ok=True)
    with needed("the demo needs", "local_hub.running", "hub").serving(folder / "hub") as served:
        hub = Hub(endpoint=served.url, token=served.token(rights="admin"), cache_dir=folder / "cache")
        say(f"The Hub is at {served.url}.")
        secret = SeasonSecret.new()
        secret.save(folder / SECRET_FILE)
        game = {key: value for key, value in what.runs.setup().items() if key.startswith("task")}
        tasks = [SeasonTask(name=what.board, spec=game, public=what.tasks, secret=what.tasks)]
        open_season(hub, "demonstration", BENCHMARK, RESULTS, secret, tasks)
        say(f"The season 'demonstration' is open; its secret is in {folder / SECRET_FILE}.")
        _enter_policies(hub, secret, what, folder / "runs", say)
        yield hub, BENCHMARK


def _enter_policies(hub: Hub, secret: SeasonSecret, what: BoardDemo, folder: Path, say: Callable[[str], None]) -> None:
    """Trains the policies and submits them, and verifies each entry before the next is submitted."""
    from hf_credit.hub.checkpoints import publish_checkpoint
    from hf_credit_leaderboard.service import Verifier
    from hf_credit_leaderboard.submission import make_submission

    seeds = range(what.runs.seed, what.runs.seed + what.seeds)
    published: dict[str, list[str]] = {}
    for seed in seeds:
        with Progress() as progress, few_threads():
            own = replace(what.runs, seed=seed)
            make_base(own, folder / f"seed_{seed}", progress)
            train_both(own, folder / f"seed_{seed}", progress)
        for name, run in folders(folder / f"seed_{seed}").items():
            repo = f"me/sudoku-{run.name}-{seed}"
            done = publish_checkpoint(run, repo, resumable=False, endpoint=hub.endpoint, token=hub.token)
            published.setdefault(name, []).append(f"{repo}@{done.commit}")
    for name, runs in published.items():
        entered = make_submission(
            hub, BENCHMARK, what.board, runs, name=name, seeds=seeds, command="hf-credit leaderboard demo"
        )
        request = entered.send(hub, RESULTS).pull_request
        say(f"{name}: {entered.score:.3f} on public tasks, {request}")
        for ruling in Verifier(hub, BENCHMARK, secret).rulings():
            say(f"  {'listed' if ruling.listed else 'rejected'}: {ruling.reason}")
