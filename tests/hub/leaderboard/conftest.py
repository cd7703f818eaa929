"""A season with one board, and tiny policies for it, made once."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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

    def download(self, repo: str, commit: str) -> Path:
        if commit not in self.policies:
            raise ValueError(f"a revision must be one of {repo}'s commits, got {commit!r}; pin one that is there.")
        return self.policies[commit]


def commit_of(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()


@pytest.fixture(scope="session")
def entry_of() -> Callable[..., Any]:
    """An entry with these fields changed."""

    def make(board: str = "relay", **changed: Any) -> Any:
        from hf_credit.hub.leaderboard.entries import Checkpoint, Entry

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
def board(tmp_path_factory: pytest.TempPathFactory, entry_of: Callable[..., Any]) -> Board:
    """A season of one relay, policies that play it well and one that does not, and an entry of each."""
    from hf_credit.hub.leaderboard.entries import Checkpoint
    from hf_credit.hub.leaderboard.rerun import play_checkpoint
    from hf_credit.hub.leaderboard.seasons import Season, SeasonSecret, SeasonTask

    folder = tmp_path_factory.mktemp("leaderboard")
    spec = {"collaboration": "relay", "collaboration_options": {"size": 5}}
    secret = SeasonSecret.new()
    season = Season(
        name="spring",
        benchmark=BENCHMARK,
        results=RESULTS,
        tasks=(SeasonTask(name="relay", spec=spec, public=48, secret=48),),
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
    )
    policies = {
        commit_of("good"): micro_relay(folder / "good", quality=0.95, seed=0),
        commit_of("other"): micro_relay(folder / "other", quality=0.95, seed=1),
        commit_of("poor"): micro_relay(folder / "poor", quality=0.1, seed=2),
    }
    shutil.copytree(policies[commit_of("good")], folder / "copy")
    policies[commit_of("copy")] = folder / "copy"
    entries = {}
    for name in ("good", "other", "poor"):
        entry = entry_of(checkpoints=(Checkpoint(repo="me/policy", commit=commit_of(name), seed=0),), name=name)
        seeds = season.board("relay").public_seeds()
        episodes, _ = play_checkpoint(policies[commit_of(name)], None, entry.task(season), seeds, device="cpu")
        entries[name] = entry, episodes
    return Board(season=season, secret=secret, policies=policies, entries=entries, folder=folder)


def micro_relay(folder: Path, quality: float, seed: int, size: int = 5, speakers: int = 2) -> Path:
    from hf_credit.collaborations import make
    from hf_credit.environments.tasks import task_seed
    from hf_credit.policies.micro import MicroConfig, init_scripted_policy
    from hf_credit.rollouts import Start
    from hf_credit.tasks.spec import Sampling, TaskSpec

    interaction = make("relay", size=size, speakers=speakers)
    # What is tested is the board, and a policy that was shown the held-out rows plays well after seconds.
    rows = interaction.tasks("held_out", 96)
    starts = [Start(task=row, seed=task_seed("train", index)) for index, row in enumerate(rows)]
    config = MicroConfig(hidden_size=32, layers=1, heads=2, episodes=96, epochs=6, batch_rows=8, seed=seed)
    player = interaction.scripted_player(quality)
    assert player is not None
    init_scripted_policy(interaction, player, starts, folder, config)
    TaskSpec.of(interaction, sampling=Sampling(max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=0)).save(folder)
    return folder


def with_outcomes(episodes: Sequence[Any], outcome: float) -> list[Any]:
    return [dataclasses.replace(one, outcome=outcome) for one in episodes]
