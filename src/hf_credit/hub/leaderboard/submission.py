"""Submitting: the public tasks of a board are played, and results with every reply become a pull request."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from hf_credit._version import __version__
from hf_credit.evaluation.ledger import read_ledger
from hf_credit.evaluation.runs import Run, read_run, versions
from hf_credit.hub.client import connect
from hf_credit.hub.leaderboard import credit_board
from hf_credit.hub.leaderboard.entries import (
    Checkpoint,
    Entry,
    PlayedEpisode,
    entry_id,
    entry_path,
    episodes_path,
    write_replies,
)
from hf_credit.hub.leaderboard.inputs import pinned, to_json
from hf_credit.hub.leaderboard.playing import play_checkpoint
from hf_credit.hub.leaderboard.records import Record
from hf_credit.hub.leaderboard.sources import Hub
from hf_credit.hub.leaderboard.weights import WANTED
from hf_credit.hub.loading import resolve
from hf_credit.hub.publishing import Published
from hf_credit.safe_io import read_json
from hf_credit.tasks.spec import TaskSpec

_LOGGED = ("config.yaml", "metrics.jsonl")
"""Of a run, beside what is played: its settings and its log. `run.json` is of both."""


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
    found = {path for pattern in (*WANTED, *_LOGGED) for path in folder.glob(pattern) if path.is_file()}
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
    task = season.board(board)
    commits = [_resolved(hub, one) for one in runs]
    base_commit = None if base is None else _resolved(hub, base)
    folders = [hub.checkpoint(*one) for one in commits]
    base_folder = None if base_commit is None else hub.checkpoint(*base_commit)
    logged = [_Logged.beside(hub, *one) for one in commits]
    spec = TaskSpec.load(folders[0]) or task.task()
    trained = list(seeds) or _training_seeds([one.run for one in logged])
    if len(trained) != len(runs):
        raise ValueError(f"every checkpoint must have a training seed, got {len(trained)} for {len(runs)}; name them.")
    shown: dict[str, Any] = {"chat_template_kwargs": dict(spec.chat_template_kwargs)}
    if task.task().environment:
        shown |= {"history": spec.history, "instructions": spec.instructions}
    method = dict(spec.method) if spec.method else {"name": "unknown", "options": {}}
    facts, run = logged[0].facts, logged[0].run
    ledger = None if run is None else read_ledger(run)
    draft = _draft(
        benchmark=f"{benchmark}@{commit}",
        season=season.name,
        board=board,
        name=name or str(method["name"]),
        method=method,
        checkpoints=tuple(
            Checkpoint(repo=repo, commit=own, seed=seed, base=base_commit and "@".join(base_commit))
            for (repo, own), seed in zip(commits, trained, strict=True)
        ),
        shown=shown,
        sampling=dataclasses.asdict(spec.sampling),
        ledger=None if ledger is None else ledger.to_dict(),
        command=command or str(facts.get("command", "")),
        versions=logged[0].versions(),
    )
    episodes: list[PlayedEpisode] = []
    for place, folder in enumerate(folders):
        episodes += play_checkpoint(
            folder,
            base_folder,
            draft.task(season),
            task.public_seeds(),
            checkpoint=place,
            device=device,
            on_replies=on_replies,
        ).episodes
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
    policy: credit_board.PinnedPolicy | None = None,
) -> Submission:
    """Measures a method of the library on a board of credit.

    Args:
        hub, benchmark, board, name, command: as in `make_submission`.
        method, options: as for `hf_credit.methods.make`.
        policy: of the board, where it is at hand: what was enumerated for one method serves the next.

    Raises:
        ValueError: there is no such board or method, or it cannot be run there.
    """
    season, folder, commit = hub.season(benchmark)
    task = season.credit_board(board)
    chosen = {"name": method, "options": options}
    made = credit_board.board_method(chosen)
    policy = policy or credit_board.PinnedPolicy(task, folder / task.policy)
    _, episodes = credit_board.measure(made, policy, task.public_seeds())
    draft = _draft(
        kind="credit",
        benchmark=f"{benchmark}@{commit}",
        season=season.name,
        board=board,
        name=name or method,
        method=chosen,
        command=command,
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
    text = to_json(entry)
    name = entry_id(text, content)
    outcomes = [
        [one.outcome for one in episodes if one.checkpoint == place] for place in range(len(entry.checkpoints))
    ]
    return Submission(
        entry=entry,
        files={entry_path(name): text, episodes_path(name): content},
        id=name,
        score=_mean([one.outcome for one in episodes]),
        claimed=tuple(
            (_mean(own), f"mean outcome on {len(own)} public tasks, as its submitter says") for own in outcomes
        ),
    )


def verified_results(record: Record) -> list[tuple[float, str]]:
    """The mean outcome of each checkpoint on the secret tasks, as a verifier found it, and a note."""
    return [
        (fmean(own), f"mean outcome on {len(own)} secret tasks, verified (entry {record.entry})")
        for own in record.secret
    ]


def propose(hub: Hub, entry: Entry, results: Sequence[tuple[float, str]], source: str) -> list[str]:
    """Opens a pull request with a result in the repository of each checkpoint, as `.eval_results`: the Hub's own form,
    which model pages show. Whoever owns it merges it or does not.

    Nobody's badge is claimed by it: `verifyToken` is Hugging Face's alone to fill.

    Args:
        hub: as an account that may open pull requests.
        entry: whose checkpoints.
        results: a value and a note for each.
        source: the address that the results are from.

    Returns:
        The addresses of the pull requests.
    """
    benchmark, commit = pinned(entry.benchmark, "a benchmark")
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{benchmark} {entry.board}").strip("-")
    opened = []
    for checkpoint, (value, note) in zip(entry.checkpoints, results, strict=True):
        result = EvalResultEntry(
            dataset_id=benchmark,
            task_id=entry.board,
            value=value,
            dataset_revision=commit,
            source_url=source,
            source_name=f"hf-credit {__version__}",
            notes=note,
        )
        text = yaml.safe_dump(eval_result_entries_to_yaml([result]), sort_keys=False, allow_unicode=True)
        files: dict[str, Path | bytes] = {f".eval_results/{name}.yaml": text.encode("utf-8")}
        message = f"Add a result on {entry.board}"
        opened.append(str(hub.publish(files, checkpoint.repo, "model", pr=True, message=message).pull_request))
    return opened


@dataclass(frozen=True)
class _Logged:
    """What a run wrote of itself beside its weights, as far as it is there and can be read."""

    facts: dict[str, Any]
    run: Run | None

    @classmethod
    def beside(cls, hub: Hub, repo: str, commit: str) -> _Logged:
        folder = hub.get(repo, "model", commit, (*WANTED, *_LOGGED)).folder
        facts = read_json(folder / "run.json") if (folder / "run.json").is_file() else {}
        run = read_run(folder) if (folder / "metrics.jsonl").is_file() else None
        return cls(facts if isinstance(facts, dict) else {}, run)

    def versions(self) -> dict[str, str]:
        found = self.facts.get("versions")
        return {f"trained with {one}": str(own) for one, own in found.items()} if isinstance(found, dict) else {}


def _training_seeds(runs: Sequence[Run | None]) -> list[int]:
    """The seed of each run's settings; their places where one does not say, or two say the same."""
    seeds = [seed for run in runs if run is not None and isinstance(seed := run.config.get("seed"), int)]
    return seeds if len(set(seeds)) == len(runs) else list(range(len(runs)))


def _draft(**fields: Any) -> Entry:
    """An entry of this machine, whose replies are still to be written."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    return Entry(
        **{**fields, "versions": {**versions(), **fields.get("versions", {})}},
        hardware=f"{platform.system()} {platform.machine()}, {device}",
        episodes_sha256="0" * 64,
    )


def _resolved(hub: Hub, name: str) -> tuple[str, str]:
    """The repository of `owner/name@revision`, and the commit that the revision is now."""
    repo, _, revision = name.partition("@")
    return repo, resolve(connect(hub.endpoint, hub.token), repo, "model", revision or None)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
