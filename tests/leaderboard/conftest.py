"""A season with one board, and tiny policies for it, made once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hub_fixtures import hub, online
from launched import completed

__all__ = ["hub", "online"]

COMMIT = "a" * 40
BENCHMARK = "board/benchmark"
RESULTS = "board/results"


@dataclass(frozen=True, kw_only=True)
class Board:
    """A season, its secret, policies by commit, and entries of them."""

    season: Any
    secret: Any
    policies: dict[str, Path]
    entries: dict[str, tuple[Any, list[Any]]]
    folder: Path

    def download(self, repo: str, commit: str, most_bytes: int) -> Path:
        if commit not in self.policies:
            raise ValueError(f"a revision must be one of {repo}'s commits, got {commit!r}; pin one that is there.")
        return self.policies[commit]


@pytest.fixture(scope="session")
def leaderboard_page() -> Any:
    """The module of the page. It imports Gradio, which takes seconds that only its own tests should spend."""
    from hf_credit_leaderboard import page

    return page


@pytest.fixture(scope="module")
def copied_confined() -> Iterator[None]:
    """The confined process is a copy of one that has imported everything; it confines itself as one started afresh."""
    from hf_credit_leaderboard import confined

    def run(command: list[str], env: dict[str, str], cwd: Path, **_: Any) -> subprocess.CompletedProcess[bytes]:
        return completed([confined.__file__, command[-1]], log=cwd / "log", environment=env, folder=cwd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confined, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))
        yield


def commit_of(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()


@pytest.fixture(scope="session")
def entry_of() -> Callable[..., Any]:
    """An entry with these fields changed."""

    def make(board: str = "relay", **changed: Any) -> Any:
        from hf_credit_leaderboard.entries import Checkpoint, Entry

        fields: dict[str, Any] = {
            "benchmark": f"{BENCHMARK}@{COMMIT}",
            "season": "spring",
            "board": board,
            "name": "C3",
            "method": {"name": "replay_loo", "options": {}},
            "checkpoints": (Checkpoint(repo="me/policy", commit=commit_of("good"), seed=0),),
            "sampling": {"max_new_tokens": 2, "temperature": 1.0, "top_p": 1.0, "top_k": 0},
            "episodes_sha256": "0" * 64,
        }
        return Entry(**{**fields, **changed})

    return make


@pytest.fixture(scope="session")
def board(
    tmp_path_factory: pytest.TempPathFactory, entry_of: Callable[..., Any], made_once: Callable[..., Path]
) -> Board:
    """A season of one relay, policies that play it well and one that does not, and an entry of each."""
    from hf_credit.policies.micro import CHAT_TEMPLATE
    from hf_credit_leaderboard.entries import Checkpoint
    from hf_credit_leaderboard.playing import loaded, played
    from hf_credit_leaderboard.seasons import Season, SeasonSecret, SeasonTask
    from hf_credit_leaderboard.weights import template_digest

    folder = tmp_path_factory.mktemp("leaderboard")
    spec = {"task": "relay", "task_options": {"size": 5}}
    secret = SeasonSecret.new()
    season = Season(
        name="spring",
        benchmark=BENCHMARK,
        results=RESULTS,
        tasks=(SeasonTask(name="relay", spec=spec, public=24, secret=24),),
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
        templates=(template_digest(CHAT_TEMPLATE),),
    )
    policies = {
        commit_of(name): made_once(f"relay-{name}", functools.partial(micro_relay, quality=quality, seed=seed))
        for seed, (name, quality) in enumerate({"good": 0.95, "other": 0.95, "poor": 0.1}.items())
    }
    shutil.copytree(policies[commit_of("good")], folder / "copy")
    policies[commit_of("copy")] = folder / "copy"
    entries = {}
    for name in ("good", "other", "poor"):
        entry = entry_of(checkpoints=(Checkpoint(repo="me/policy", commit=commit_of(name), seed=0),), name=name)
        seeds = season.board("relay").public_seeds()
        policy, _ = loaded(policies[commit_of(name)], None, entry.task(season), "cpu")
        entries[name] = entry, played(policy, seeds, 0)
    return Board(season=season, secret=secret, policies=policies, entries=entries, folder=folder)


def micro_relay(folder: Path, quality: float, seed: int, size: int = 5, speakers: int = 2) -> Path:
    from hf_credit.collaborations import make
    from hf_credit.environments.tasks import task_seed
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.tasks.spec import Sampling, TaskSpec
    from hf_credit.trainers.micro import init_scripted_policy

    interaction = make("relay", size=size, speakers=speakers)
    # What is tested is the board, and a policy that was shown the held-out rows plays well after seconds.
    rows = interaction.tasks("held_out", 96)
    starts = [RolloutRequest(task=row, seed=task_seed("train", index)) for index, row in enumerate(rows)]
    config = MicroConfig(hidden_size=32, layers=1, heads=2, episodes=96, epochs=6, batch_rows=8, seed=seed)
    player = interaction.scripted_player(quality)
    assert player is not None
    init_scripted_policy(interaction, player, starts, folder, config)
    TaskSpec.of(interaction, sampling=Sampling(max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=0)).save(folder)
    return folder


def with_outcomes(episodes: Sequence[Any], outcome: float) -> list[Any]:
    return [dataclasses.replace(one, outcome=outcome) for one in episodes]


HOSTILE = "<img src=x onerror=document.title=1> [a](http://evil.example) $\\frac{1}{0}$"
FORMULA = "=HYPERLINK(1)"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Results in a folder, with the ids of its entries by name."""

    season: Any
    folder: Path
    ids: dict[str, str]
    outcomes: dict[str, Any]

    def results(self) -> Any:
        from hf_credit_leaderboard.results import read_results

        return dataclasses.replace(read_results(self.folder, self.season), cells=CELLS)

    def source(self) -> Any:
        from hf_credit_leaderboard.sources import Source

        return Source(self.results)


def cell(method: str, trace: float, **changed: Any) -> dict[str, Any]:
    """A cell of the bench."""
    known = {"problem": "key", "policy": "start", "critic": "exact", "dials": {}, "options": {}, "refused": None}
    return {**known, "method": method, "trace": trace, "angle": 0.0, "areas": [0.25, 0.75], **changed}


CELLS = (
    cell("exact_advantage", 10.0),
    cell("grpo", 40.0, angle=12.5),
    cell("grpo", 20.0, dials={"horizon": 8}),
    cell("ppo", 30.0, critic="untaught"),
    cell("carl", 30.0, refused="It needs entropies."),
    cell("rloo", 50.0, problem="chain", areas=[]),
)


@pytest.fixture(scope="session")
def listed(tmp_path_factory: pytest.TempPathFactory, entry_of: Callable[..., Any]) -> Listed:
    """Entries of a board of Sudoku with made-up outcomes, among them hostile ones, and a cell of the bench."""
    import numpy as np

    from hf_credit_leaderboard.entries import Checkpoint
    from hf_credit_leaderboard.seasons import Season, SeasonSecret, SeasonTask
    from hf_credit_leaderboard.submission import packed

    folder = tmp_path_factory.mktemp("results")
    secret = SeasonSecret.new()
    sudoku = {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}}
    season = Season(
        name="spring",
        benchmark=BENCHMARK,
        results=RESULTS,
        tasks=(
            SeasonTask(name="sudoku", spec=sudoku, public=6, secret=40),
            SeasonTask(name="nothing yet", spec=sudoku, public=6, secret=40, size="full"),
        ),
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
    )
    draws = np.random.default_rng(0)
    means = {"steady": (0.9, 3), "quick": (0.6, 1), "slow": (0.55, 2), HOSTILE: (0.2, 1), FORMULA: (0.1, 1)}
    ids, outcomes = {}, {}
    played = scripted_sudoku(season)
    for place, (name, (mean, seeds)) in enumerate(means.items()):
        checkpoints = tuple(
            Checkpoint(repo="me/policy", commit=f"{10 * place + seed:040x}", seed=seed) for seed in range(seeds)
        )
        episodes = [dataclasses.replace(one, checkpoint=seed) for seed in range(seeds) for one in played]
        method = {"name": name if name == FORMULA else "verifiable_process", "options": {}}
        drafted = entry_of("sudoku", name=name, checkpoints=checkpoints, method=method)
        ids[name] = written(folder, packed(drafted, episodes))
        table = (draws.random((seeds, 40)) < mean).astype(float)
        outcomes[name] = table
        recorded(folder, ids[name], season, secret, "sudoku", table, parameters=22_048, tokens=31.5)
    copied = entry_of("sudoku", name="copy", checkpoints=(Checkpoint(repo="you/p", commit="f" * 40, seed=0),))
    ids["copy"] = written(folder, packed(copied, played))
    recorded(folder, ids["copy"], season, secret, "sudoku", outcomes["quick"], copy_of=ids["quick"])
    claimed = entry_of("sudoku", name="claimed", checkpoints=(Checkpoint(repo="us/p", commit="e" * 40, seed=0),))
    ids["claimed"] = written(folder, packed(claimed, played))
    return Listed(season=season, folder=folder, ids=ids, outcomes=outcomes)


def scripted_sudoku(season: Any) -> list[Any]:
    """Episodes of the public tasks by a player who is mostly right."""
    from hf_credit.policies.scripted import walk
    from hf_credit_leaderboard.entries import PlayedEpisode
    from hf_credit_leaderboard.seasons import starts_of

    interaction = season.board("sudoku").task().build()
    player = interaction.scripted_player(0.8)
    found = []
    for start in starts_of(interaction, season.board("sudoku").public_seeds()):
        steps, final = walk(interaction, player, start)
        replies = tuple(reply for _, _, own in steps for reply in own)
        found.append(
            PlayedEpisode(
                checkpoint=0,
                seed=start.seed,
                ending=str(interaction.ending(final)),
                outcome=float(interaction.outcome(final)),
                events=("agent",) * len(replies),
                replies=replies,
                tokens=(7,) * len(replies),
            )
        )
    return found


def written(folder: Path, submission: Any) -> str:
    for name, content in submission.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return str(submission.id)


def recorded(folder: Path, name: str, season: Any, secret: Any, board: str, table: Any, **fields: Any) -> None:
    from hf_credit_leaderboard.records import Record, record_path

    rows = tuple(tuple(float(value) for value in row) for row in table)
    record = Record(entry=name, season=season.name, board=board, badge="verified", secret=rows, **fields)
    (folder / record_path(name)).parent.mkdir(exist_ok=True)
    (folder / record_path(name)).write_bytes(record.signed(secret))
