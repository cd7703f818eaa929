"""Datasets of tasks, which any client can read: the seed and the columns of each task, in two splits."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from datasets import Dataset, Features, Value

from hf_credit.data import fingerprint
from hf_credit.files import OwnFolder, write
from hf_credit.hub import cards, safety, tables
from hf_credit.hub.loading import Where
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.tables import write_table
from hf_credit.rollouts.capabilities import TaskSource
from hf_credit.tasks import TaskSpec

_SPLITS = {"train": "train", "held_out": "test"}  # the library's name of a split: the Hub's name


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Loaded tasks.

    Attributes:
        spec: the task and its presentation. Code that it names is not trusted.
        train, held_out: rows with the seed and the columns of each task.
        commit: the commit that they were loaded from.
    """

    spec: TaskSpec
    train: Dataset | None
    held_out: Dataset | None
    commit: str


def publish_tasks(
    spec: TaskSpec, repo: str, *, train: int = 1024, held_out: int = 256, first: int = 0, **where: Any
) -> Published:
    """Publishes tasks of an environment or a collaboration as a dataset.

    Args:
        spec: the task.
        repo: owner/name.
        train, held_out: the number of tasks in each split; 0 omits a split.
        first: the index of the first task of each split.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: there are no such tasks, or a seed is missing or repeated; and as for `publish`.
    """
    interaction, spec = spec.build(), spec.complete()
    rows = {
        split: list(TaskSource(interaction).tasks(split, size, first))  # type: ignore[arg-type]
        for split, size in (("train", train), ("held_out", held_out))
        if size
    }
    with OwnFolder() as folder:
        write_tasks(folder, spec, rows, repo)
        files, message = safety.files_of(folder), f"Publish tasks of {spec.task}"
        return publish(files, repo, repo_type="dataset", message=message, replaces=("tasks/",), **where)


def write_tasks(folder: Path, spec: TaskSpec, rows: Mapping[str, Sequence[Mapping[str, Any]]], repo: str) -> None:
    """Writes tasks to a folder that can be published.

    Args:
        folder: an empty folder.
        rows: the rows of "train", "held_out" or both.
        repo: the repository of the publication, for the card.

    Raises:
        ValueError: there are no tasks, or a seed is missing or repeated.
    """
    all_rows = [row for split in rows.values() for row in split]
    if not all_rows:
        raise ValueError("a dataset must have tasks, got none; request one or more.")
    _refuse_bad_seeds(all_rows)
    inferred = tables.infer_features(all_rows)
    reserved = {"split", "environment", "options", "fingerprint"} & set(inferred)
    if reserved:
        raise ValueError(f"columns of a task must not have reserved names, got {', '.join(reserved)}; rename them.")
    features = Features(
        {
            **({"seed": Value("int64")} if "seed" in inferred else {}),
            "split": Value("string"),
            "environment": Value("string"),
            "options": Value("string"),
            **{name: feature for name, feature in inferred.items() if name != "seed"},
            "fingerprint": Value("string"),
        }
    )
    shown = {"environment": spec.task, "options": tables.compact_json(spec.task_options)}
    prints = {}
    for split, tasks in rows.items():
        full = [{**row, **shown, "split": split, "fingerprint": _fingerprint(row)} for row in tasks]
        prints[split] = fingerprint(row["fingerprint"] for row in full)
        write_table(folder, "tasks", _SPLITS[split], full, features)
    facts = {
        "columns": list(inferred),
        "fingerprints": prints,
        "rows": {split: len(tasks) for split, tasks in rows.items()},
    }
    tables.write_description(folder, "tasks", {"task": spec.to_dict(), **facts})
    card = cards.tasks_card(repo, spec, {_SPLITS[split]: len(tasks) for split, tasks in rows.items()}, prints)
    write(folder / "README.md", card)


def load_tasks(repo: str, **where: Unpack[Where]) -> Tasks:
    """Loads the tasks that `publish_tasks` published; `where` is as for `fetch`: revision, token, endpoint.

    Raises:
        ValueError: the dataset is of another kind, or a seed is missing or repeated; and as for `fetch`.
    """
    fetched = tables.fetch_tables(repo, "tasks", **where)
    about = tables.read_description(fetched.folder, "tasks", repo)
    _refuse_bad_description(about, repo)
    spec = TaskSpec.untrusted(about.get("task"))
    splits: dict[str, Dataset] = {}
    rows = []
    for split in about["rows"]:
        tasks = list(tables.read_table(fetched.folder, "tasks", _SPLITS[split], None))
        if not tasks or any(name not in row for row in tasks for name in about["columns"]):
            raise ValueError(
                f"tasks of {repo} must have the columns {', '.join(about['columns'])[:200]}, got none or others in "
                f"{split}; publish again."
            )
        kept = [{name: row[name] for name in about["columns"]} for row in tasks]
        if fingerprint(_fingerprint(row) for row in kept) != about["fingerprints"][split]:
            raise ValueError(
                f"tasks of {repo} must have the fingerprint of its description, got others in {split}; publish again."
            )
        rows += kept
        splits[split] = Dataset.from_list(kept, features=tables.infer_features(kept))
    _refuse_bad_seeds(rows)
    return Tasks(spec=spec, train=splits.get("train"), held_out=splits.get("held_out"), commit=fetched.commit)


def _refuse_bad_description(about: Mapping[str, Any], repo: str) -> None:
    columns, rows, prints = (about.get(name) for name in ("columns", "rows", "fingerprints"))
    if (
        not (isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns))
        or not (isinstance(rows, dict) and rows and rows.keys() <= _SPLITS.keys())
        or not (isinstance(prints, dict) and prints.keys() == rows.keys())
    ):
        raise ValueError(
            f"{tables.DESCRIPTION_FILE} of {repo} must list the columns of tasks, and the rows and the fingerprint of "
            f"{' and '.join(_SPLITS)}, got {str((columns, rows, prints))[:200]}; publish again."
        )


def _refuse_bad_seeds(rows: Sequence[Mapping[str, Any]]) -> None:
    seeds = [row["seed"] for row in rows if "seed" in row]
    if seeds and (len(seeds) < len(rows) or any(type(seed) is not int for seed in seeds)):
        raise ValueError("every task must have a seed, a whole number, got one without; add it.")
    for seed, count in Counter(seeds).items():
        if count > 1:
            raise ValueError(f"every task must have a seed of its own, got {seed} more than once; drop it.")


def _fingerprint(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(tables.compact_json(dict(row)).encode()).hexdigest()
