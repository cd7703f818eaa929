"""Submitting: the public tasks of a board are played, and results with every reply become a pull request."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_credit.evaluation.ledger import read_ledger
from hf_credit.evaluation.runs import read_run, versions
from hf_credit.hub.client import connect
from hf_credit.hub.leaderboard import credit_board
from hf_credit.hub.leaderboard.entries import Checkpoint, Entry, entry_id, entry_path, episodes_path
from hf_credit.hub.leaderboard.pinned_policy import PinnedPolicy
from hf_credit.hub.leaderboard.replies import PlayedEpisode, write_replies
from hf_credit.hub.leaderboard.rerun import play_checkpoint
from hf_credit.hub.leaderboard.seasons import Season
from hf_credit.hub.leaderboard.weights import WANTED
from hf_credit.hub.loading import fetch, resolve
from hf_credit.hub.publishing import Published, publish
from hf_credit.safe_io import read_json
from hf_credit.tasks.spec import TaskSpec

_LOGGED = ("config.yaml", "metrics.jsonl")
"""Of a run, beside what is played: its settings and its log. `run.json` is of both."""


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Which Hub is spoken to, and as whom.

    Attributes:
        endpoint, token: as for `hf_credit.hub.client.connect`.
        cache_dir: where downloads lie; the cache of huggingface_hub if `None`.
    """

    endpoint: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    cache_dir: Path | None = None

    def season(self, benchmark: str, revision: str | None = None) -> tuple[Season, Path, str]:
        """The season of a benchmark, its folder and its commit.

        Raises:
            ValueError: there is none, or it names another benchmark.
        """
        found = self.get(benchmark, "dataset", revision)
        season = Season.load(found.folder)
        if season.benchmark != benchmark:
            raise ValueError(f"the season of {benchmark} must name it, got {season.benchmark}; publish its own.")
        return season, found.folder, found.commit

    def get(
        self,
        repo: str,
        repo_type: str,
        revision: str | None = None,
        allow: Sequence[str] | None = None,
        most_bytes: int | None = None,
    ) -> Any:
        """`hf_credit.hub.loading.fetch` from this Hub."""
        return fetch(
            repo,
            repo_type=repo_type,
            revision=revision,
            token=self.token,
            endpoint=self.endpoint,
            allow=allow,
            cache_dir=self.cache_dir,
            most_bytes=most_bytes,
        )

    def checkpoint(self, repo: str, commit: str, most_bytes: int | None = None) -> Path:
        """The folder of a checkpoint at a commit, in safetensors and text alone, of at most so many bytes.

        The cache holds links to files that lie together with those of other commits; the folder holds the files, so
        that a process which may read it can read nothing else.
        """
        found = self.get(repo, "model", commit, WANTED, most_bytes)
        plain = found.folder.parent.parent / "plain" / str(found.commit)
        if not plain.is_dir():
            plain.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(dir=plain.parent))
            for name, path in found.files.items():
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, unfinished / name)
            with contextlib.suppress(OSError):  # another process was first
                unfinished.rename(plain)
        return Path(plain)

    def publish(self, files: dict[str, Path | bytes], repo: str, repo_type: str, **options: Any) -> Published:
        """`hf_credit.hub.publishing.publish` to this Hub."""
        return publish(files, repo, repo_type=repo_type, token=self.token, endpoint=self.endpoint, **options)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """An entry as it is ready to be sent.

    Attributes:
        entry: what is claimed.
        files: by their names in the results.
        id: of the entry.
        score: the mean outcome that it claims.
        claimed: that of each checkpoint, and a note.
    """

    entry: Entry
    files: dict[str, Path | bytes]
    id: str
    score: float
    claimed: tuple[tuple[float, str], ...] = ()

    def send(self, hub: Hub, results: str) -> Published:
        """Opens the pull request.

        Raises:
            ValueError: as for `hf_credit.hub.publishing.publish`.
        """
        message = f"Enter {self.entry.name} on {self.entry.board}"
        return hub.publish(self.files, results, "dataset", pr=True, message=message)


def publish_run(hub: Hub, folder: Path, repo: str) -> str:
    """Publishes what of a run's folder is played, and gives its commit: weights, tokenizer, task, settings and log.

    Raises:
        ValueError: the folder holds nothing of it.
    """
    found = {path for pattern in WANTED for path in folder.glob(pattern) if path.is_file()}
    found |= {folder / name for name in _LOGGED if (folder / name).is_file()}
    files: dict[str, Path | bytes] = {path.relative_to(folder).as_posix(): path for path in sorted(found)}
    if not any(name.endswith(".safetensors") for name in files):
        raise ValueError(f"a run must hold weights as safetensors, got none in {str(folder)!r}; save the model there.")
    commit = hub.publish(files, repo, "model", message="Add a checkpoint").commit
    assert commit is not None
    return commit


def make_submission(
    hub: Hub,
    benchmark: str,
    board: str,
    runs: Sequence[str],
    *,
    name: str | None = None,
    base: str | None = None,
    seeds: Sequence[int] = (),
    command: str = "",
    device: str | None = None,
    on_replies: Callable[[int], None] | None = None,
) -> Submission:
    """Plays the public tasks of a board with a method's checkpoints.

    How the task is shown and sampled, the method and what training cost are read beside the first checkpoint.

    Args:
        hub: which Hub.
        benchmark: the dataset of the season.
        board: one of its boards.
        runs: a checkpoint for each training seed, as `owner/name` or `owner/name@revision`.
        name: of the entry; that of the method if `None`.
        base: the base model of adapters, in the same form.
        seeds: of the training runs; as their settings say, or else counted, if empty.
        command: that made it; that of the run if empty.
        device: to play on.
        on_replies: told after each round how many replies it brought.

    Raises:
        ValueError: a checkpoint, the board or a setting is not possible.
    """
    season, _, commit = hub.season(benchmark)
    api = connect(hub.endpoint, hub.token)
    pinned = [_pinned(api, one) for one in runs]
    folders = [hub.checkpoint(repo, at) for repo, at in pinned]
    base_pinned = None if base is None else _pinned(api, base)
    base_folder = None if base_pinned is None else hub.checkpoint(*base_pinned)
    spec = TaskSpec.load(folders[0]) or season.board(board).task()
    noted = [hub.get(repo, "model", at, (*WANTED, *_LOGGED)).folder for repo, at in pinned]
    facts = _facts(noted[0])
    trained = list(seeds) or _training_seeds(noted)
    if len(trained) != len(pinned):
        raise ValueError(
            f"every checkpoint must have a training seed, got {len(trained)} for {len(pinned)}; name them."
        )
    own_board = season.board(board).task()
    shown: dict[str, Any] = {"chat_template_kwargs": dict(spec.chat_template_kwargs)}
    if own_board.environment:
        shown |= {"history": spec.history, "instructions": spec.instructions}
    method = dict(spec.method) if spec.method else {"name": "unknown", "options": {}}
    draft = Entry(
        benchmark=f"{benchmark}@{commit}",
        season=season.name,
        board=board,
        name=name or str(method["name"]),
        method=method,
        checkpoints=tuple(
            Checkpoint(repo=repo, commit=at, seed=seed, base=None if base_pinned is None else "@".join(base_pinned))
            for (repo, at), seed in zip(pinned, trained, strict=True)
        ),
        shown=shown,
        sampling=dataclasses.asdict(spec.sampling),
        ledger=facts.get("ledger"),
        command=command or str(facts.get("command", "")),
        hardware=_hardware(),
        versions={**versions(), **{f"trained with {k}": str(v) for k, v in facts.get("versions", {}).items()}},
        episodes_sha256="0" * 64,
    )
    episodes: list[PlayedEpisode] = []
    for place, folder in enumerate(folders):
        played = play_checkpoint(
            folder,
            base_folder,
            draft.task(season),
            season.board(board).public_seeds(),
            checkpoint=place,
            device=device,
            on_replies=on_replies,
        )
        episodes += played.episodes
    return packed(draft, episodes)


def make_credit_submission(
    hub: Hub,
    benchmark: str,
    board: str,
    method: str,
    options: dict[str, Any],
    *,
    name: str | None = None,
    command: str = "",
    pinned: PinnedPolicy | None = None,
) -> Submission:
    """Measures a method of the library on a board of credit.

    Args:
        hub, benchmark, board, name, command: as in `make_submission`.
        method, options: as for `hf_credit.methods.make`.
        pinned: the board, where it is at hand: what was enumerated for one method serves the next.

    Raises:
        ValueError: there is no such board or method, or it cannot be run there.
    """
    season, folder, commit = hub.season(benchmark)
    task = season.credit_board(board)
    chosen = {"name": method, "options": options}
    made = credit_board.board_method(chosen)
    pinned = pinned or PinnedPolicy(task, folder / task.policy)
    _, episodes = credit_board.measure(made, pinned, task.public_seeds())
    draft = Entry(
        kind="credit",
        benchmark=f"{benchmark}@{commit}",
        season=season.name,
        board=board,
        name=name or method,
        method=chosen,
        command=command,
        hardware=_hardware(),
        versions=versions(),
        episodes_sha256="0" * 64,
    )
    return packed(draft, episodes)


def packed(draft: Entry, episodes: Sequence[PlayedEpisode]) -> Submission:
    """The files of an entry.

    Args:
        draft: the entry, whose `episodes_sha256` is still to be set.
        episodes: behind it.
    """
    with tempfile.TemporaryDirectory() as folder:
        content = write_replies(episodes, Path(folder) / "episodes.parquet").read_bytes()
    entry = dataclasses.replace(draft, episodes_sha256=hashlib.sha256(content).hexdigest())
    text = entry.to_json()
    own = entry_id(text, content)
    score = sum(one.outcome for one in episodes) / max(1, len(episodes))
    files: dict[str, Path | bytes] = {entry_path(own): text, episodes_path(own): content}
    return Submission(entry=entry, files=files, id=own, score=score, claimed=claimed_results(entry, episodes))


def claimed_results(entry: Entry, episodes: Sequence[PlayedEpisode]) -> tuple[tuple[float, str], ...]:
    """The mean outcome of each checkpoint on the public tasks, and what it is."""
    found = []
    for place in range(len(entry.checkpoints)):
        own = [one.outcome for one in episodes if one.checkpoint == place]
        found.append((sum(own) / max(1, len(own)), f"mean outcome on {len(own)} public tasks, as its submitter says"))
    return tuple(found)


def _pinned(api: Any, name: str) -> tuple[str, str]:
    repo, _, revision = name.partition("@")
    return repo, resolve(api, repo, "model", revision or None)


def _facts(folder: Path) -> dict[str, Any]:
    """What a run noted of itself beside its weights, as far as it is there and can be read."""
    found: dict[str, Any] = {}
    path = folder / "run.json"
    if path.is_file():
        noted = read_json(path)
        found = dict(noted) if isinstance(noted, dict) else {}
        versions_noted = found.get("versions")
        found["versions"] = versions_noted if isinstance(versions_noted, dict) else {}
    if (folder / "metrics.jsonl").is_file():
        ledger = read_ledger(read_run(folder))
        found["ledger"] = None if ledger is None else ledger.to_dict()
    return found


def _training_seeds(folders: Sequence[Path]) -> list[int]:
    """The seed of each run's settings; their places where one does not say, or two say the same."""
    found = []
    for folder in folders:
        path = folder / "config.yaml"
        seed = read_run(folder).config.get("seed") if path.is_file() and (folder / "metrics.jsonl").is_file() else None
        found.append(seed if isinstance(seed, int) else None)
    known = [seed for seed in found if seed is not None]
    return known if len(set(known)) == len(folders) else list(range(len(folders)))


def _hardware() -> str:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    return f"{platform.system()} {platform.machine()}, {device}"
