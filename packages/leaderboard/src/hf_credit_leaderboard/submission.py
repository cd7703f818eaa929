"""Submissions: play the public tasks of a board and open a pull request with the results and every reply."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from hf_credit.evaluation.credit_tables import read_ledger
from hf_credit.evaluation.runs import CONFIG_FILE, LOG_FILE, Run, read_facts, read_run, versions
from hf_credit.files import write
from hf_credit.hub.checkpoints import publish_checkpoint
from hf_credit.hub.client import connect
from hf_credit.hub.loading import resolve
from hf_credit.hub.publishing import Published
from hf_credit.tasks.spec import TaskSpec
from hf_credit_leaderboard import entries
from hf_credit_leaderboard.inputs import to_json
from hf_credit_leaderboard.playing import loaded, played
from hf_credit_leaderboard.sources import Hub
from hf_credit_leaderboard.weights import WANTED


@dataclass(frozen=True, kw_only=True)
class Submission:
    """An entry that is ready to send.

    Attributes:
        entry: the claim.
        files: the files by their paths in the results.
        id: the id of the entry.
        score: the claimed mean outcome.
    """

    entry: entries.Entry
    files: dict[str, Path | bytes]
    id: str
    score: float

    def save(self, folder: Path) -> None:
        """Writes the files to a folder."""
        for name, content in self.files.items():
            write(folder / name, content if isinstance(content, bytes) else content.read_bytes())

    def send(self, hub: Hub, results: str) -> Published:
        """Opens the pull request.

        Raises:
            ValueError: as for `hf_credit.hub.publishing.publish`.
        """
        message = f"Enter {self.entry.name} on {self.entry.board}"
        return hub.publish(self.files, results, "dataset", pr=True, message=message)


def published(hub: Hub, runs: Sequence[str], repo: str | None, base: str | None = None) -> list[str]:
    """Publishes the checkpoints that are folders, and returns all as `owner/name` or `owner/name@revision`.

    Args:
        repo: owner/name; of several checkpoints, each has its place after it.
        base: as for `publish_checkpoint`.

    Raises:
        ValueError: there is a folder and no `repo`.
    """
    found = []
    for place, run in enumerate(runs):
        if Path(run).is_dir():
            if repo is None:
                raise ValueError(f"a folder must be published to be verified, got {run!r}; add --publish-as.")
            target = repo if len(runs) == 1 else f"{repo}-{place}"
            done = publish_checkpoint(run, target, resumable=False, base=base, endpoint=hub.endpoint, token=hub.token)
            run = f"{target}@{done.commit}"
        found.append(run)
    return found


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
) -> Submission:
    """Plays the public tasks of a board with a method's checkpoints.

    The presentation and sampling of the task, the method and the cost of training come from the files next to the
    first checkpoint.

    Args:
        runs: one checkpoint per training seed, as `owner/name` or `owner/name@revision`.
        name: the name of the entry; the method's if `None`.
        base: the base model of adapters, in the same form.
        seeds: the training seeds; if empty, those of the runs' settings, or else 0, 1, ...
        command: the command that made the checkpoints; the run's own if empty.

    Raises:
        ValueError: a checkpoint, the board or a setting is invalid.
    """
    season, commit = hub.season(benchmark)
    task = season.board(board)
    commits = [_resolved(hub, run) for run in runs]
    base_commit = None if base is None else _resolved(hub, base)
    folders = [hub.get(repo, "model", sha, WANTED).folder for repo, sha in commits]
    base_folder = None if base_commit is None else hub.get(base_commit[0], "model", base_commit[1], WANTED).folder
    logs = [_logged(hub, *pinned_run) for pinned_run in commits]
    spec = TaskSpec.load(folders[0]) or task.task()
    training_seeds = list(seeds) or _training_seeds([run for _, run in logs])
    if len(training_seeds) != len(runs):
        raise ValueError(
            f"every checkpoint must have a training seed, got {len(training_seeds)} for {len(runs)}; name them."
        )
    shown: dict[str, Any] = {"chat_template_kwargs": dict(spec.chat_template_kwargs)}
    if task.task().has_prompts():
        shown |= {name: getattr(spec, name) for name in entries.SHOWN}
    method = dict(spec.method) if spec.method else {"name": "unknown", "options": {}}
    facts, run = logs[0]
    ledger = None if run is None else read_ledger(run)
    packages = facts.get("versions")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    draft = entries.Entry(
        benchmark=f"{benchmark}@{commit}",
        season=season.name,
        board=board,
        name=name or str(method["name"]),
        method=method,
        checkpoints=tuple(
            entries.Checkpoint(repo=repo, commit=sha, seed=seed, base=base_commit and "@".join(base_commit))
            for (repo, sha), seed in zip(commits, training_seeds, strict=True)
        ),
        shown=shown,
        sampling=dataclasses.asdict(spec.sampling),
        ledger=None if ledger is None else ledger.to_dict(),
        command=command or str(facts.get("command", "")),
        hardware=f"{platform.system()} {platform.machine()}, {gpu}",
        versions=versions()
        | {
            f"trained with {package}": str(version)
            for package, version in (packages if isinstance(packages, dict) else {}).items()
        },
        episodes_sha256="0" * 64,  # until they are played
    )
    draft_task, public = draft.task(season), task.public_seeds()
    episodes: list[entries.PlayedEpisode] = []
    for index, folder in enumerate(folders):
        policy, _ = loaded(folder, base_folder, draft_task, device)
        episodes += played(policy, public, index)
        del policy  # before the next one is loaded
    return packed(draft, episodes)


def packed(draft: entries.Entry, episodes: Sequence[entries.PlayedEpisode]) -> Submission:
    """Makes the files of an entry.

    Args:
        draft: the entry, except for its `episodes_sha256`.
    """
    content = entries.replies_file(episodes)
    entry = dataclasses.replace(draft, episodes_sha256=hashlib.sha256(content).hexdigest())
    text = to_json(entry)
    name = entries.entry_id(text, entry.episodes_sha256)
    return Submission(
        entry=entry,
        files=dict(zip(entries.paths_of(name), (text, content), strict=True)),
        id=name,
        score=fmean(one.outcome for one in episodes),
    )


def _logged(hub: Hub, repo: str, commit: str) -> tuple[dict[str, Any], Run | None]:
    """Reads the facts and the log of a run next to its weights, as far as they exist."""
    folder = hub.get(repo, "model", commit, (*WANTED, CONFIG_FILE, LOG_FILE)).folder
    return read_facts(folder), read_run(folder) if (folder / LOG_FILE).is_file() else None


def _training_seeds(runs: Sequence[Run | None]) -> list[int]:
    """Returns the seed in each run's settings; 0, 1, ... if one is missing or two are equal."""
    seeds = [seed for run in runs if run is not None and isinstance(seed := run.config.get("seed"), int)]
    return seeds if len(set(seeds)) == len(runs) else list(range(len(runs)))


def _resolved(hub: Hub, name: str) -> tuple[str, str]:
    """Returns the repository of `owner/name@revision`, and the current commit of the revision."""
    repo, _, revision = name.partition("@")
    return repo, resolve(connect(hub.endpoint, hub.token), repo, "model", revision or None)
