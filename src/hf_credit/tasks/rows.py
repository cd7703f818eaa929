"""Task rows from datasets, and the starts of evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from hf_credit.data import is_problem_set, load_problems
from hf_credit.environments.randomness import derive
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.rollouts import Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import TaskSource

_FILES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}


def load_splits(
    name: str, only: str, config: str | None = None, streaming: bool = False
) -> Mapping[str, Dataset | IterableDataset]:
    """The splits of a dataset.

    Args:
        name: a file, a folder of `save_to_disk`, or an id on the Hub.
        only: the name of the split if the dataset has no splits.
        config: the subset of a dataset on the Hub.
        streaming: whether rows are read when they are needed.

    Raises:
        ValueError: the file has an unknown format, or cannot be read.
        OSError: there is no such dataset.
    """
    path = Path(name)
    loaded: Any
    try:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            loaded = load_from_disk(name)
        elif path.is_file():
            if path.suffix not in _FILES:
                raise ValueError(f"a dataset's file must end in {', '.join(_FILES)}, got {name!r}; convert it.")
            loaded = load_dataset(_FILES[path.suffix], data_files={only: name}, streaming=streaming)
        else:
            loaded = load_dataset(name, name=config, streaming=streaming)
    except (DatasetsError, RecursionError) as error:
        reason = (str(error.__cause__ or error) or type(error).__name__).splitlines()[0][:300]
        raise ValueError(f"a dataset must be readable, got {name!r} ({reason}); fix it.") from error
    return loaded if isinstance(loaded, DatasetDict | IterableDatasetDict) else {only: loaded}


def require_split(splits: Mapping[str, Any], split: str, remedy: str) -> Any:
    """The rows of a split.

    Raises:
        ValueError: there is no such split.
    """
    if split not in splits:
        raise ValueError(f"the dataset must have the split {split!r}, got {', '.join(map(repr, splits))}; {remedy}.")
    return splits[split]


def held_out_starts(episodes: int, first: int = 0) -> list[RolloutRequest[Any]]:
    """Starts of the held-out tasks `first` to `first + episodes - 1` of any environment, the same for every policy.

    Raises:
        ValueError: there is no such task.
    """
    seeds = [task_seed("held_out", index) for index in range(first, first + episodes)]
    return [RolloutRequest(task={}, seed=seed) for seed in seeds]


def starts_of(rows: Iterable[Mapping[str, Any]], split: Split, first: int = 0) -> list[RolloutRequest[Any]]:
    """Starts of task rows with the seeds of the tasks of a split from index `first` on."""
    return [RolloutRequest(task=row, seed=task_seed(split, first + place)) for place, row in enumerate(rows)]


def evaluation_starts(
    interaction: Interaction[Any],
    episodes: int | None = None,
    first: int = 0,
    dataset: str | None = None,
    split: str = "test",
) -> list[RolloutRequest[Any]]:
    """One start for each task of an evaluation, the same for every policy.

    Args:
        episodes: number of tasks; if `None`, 256 held-out tasks or the rest of the dataset.
        first: index of the first task.
        dataset: the dataset of task rows, as in `load_splits`, or a problem set, as in `load_problems`; the
            interaction's held-out tasks if `None`.
        split: of the dataset; ignored for a problem set.

    Raises:
        ValueError: there are too few tasks, or their columns do not fit.
    """
    if dataset is None:
        rows = TaskSource(interaction).tasks("held_out", 256 if episodes is None else episodes, first)
        return starts_of(rows, "held_out", first)
    if is_problem_set(dataset):
        found = load_problems(dataset).rows
    else:
        found = require_split(load_splits(dataset, only=split), split, "name one of these with --split")
    TaskSource(interaction).require_columns(found.column_names)
    last = len(found) if episodes is None else first + episodes
    if not first < last <= len(found):
        raise ValueError(
            f"the dataset must have a row for each task, got {len(found)} rows for {last - first} tasks from row "
            f"{first}; play fewer tasks."
        )
    chosen = enumerate(found.select(range(first, last)), start=first)
    if TaskSource(interaction).seeded:
        return [RolloutRequest(task=row, seed=row["seed"]) for _, row in chosen]
    # Policies are compared by seed, so different rows must have different seeds.
    return [
        RolloutRequest(task=row, seed=derive(n, json.dumps(row, sort_keys=True, default=str))) for n, row in chosen
    ]
