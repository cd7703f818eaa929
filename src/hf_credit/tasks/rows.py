"""Task rows from datasets, and the starts of evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import (
    Dataset,
    DatasetDict,
    IterableDataset,
    IterableDatasetDict,
    concatenate_datasets,
    load_dataset,
    load_from_disk,
)
from datasets.exceptions import DatasetsError

from hf_credit.content import plain_image
from hf_credit.data import Problems, drop_overlap, fingerprint, is_problem_set, load_problems, refuse_overlap
from hf_credit.environments.randomness import derive
from hf_credit.environments.tasks import Split, task_seed
from hf_credit.rollouts import Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import TaskSource
from hf_credit.validators import one_of

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
        elif path.suffix in _FILES:
            raise FileNotFoundError(f"a dataset's file must exist, got {name!r}; correct the path.")
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
            f"the dataset must have a row for each task, got {len(found)} rows for {max(1, last - first)} tasks from "
            f"row {first}; play fewer tasks, or earlier ones."
        )
    chosen = enumerate(found.select(range(first, last)), start=first)
    if TaskSource(interaction).seeded:
        return [RolloutRequest(task=row, seed=row["seed"]) for _, row in chosen]
    # Policies are compared by seed, so different rows must have different seeds.
    return [
        RolloutRequest(task=row, seed=derive(n, json.dumps(row, sort_keys=True, default=plain_image)))
        for n, row in chosen
    ]


@dataclass(frozen=True, kw_only=True)
class TaskRows:
    """Task rows of a run."""

    train: Dataset | IterableDataset
    held_out: Dataset | IterableDataset | None  # the rows of evaluations during training, or `None`
    facts: dict[str, Any] = field(default_factory=dict)  # plain values for the run's record


def without_evaluation(
    train: Dataset | IterableDataset,
    evaluation: Sequence[Problems],
    on_overlap: str,
    column: str,
    held_out_tasks: int = 0,
    sets: Sequence[Problems] = (),
) -> TaskRows:
    """Training rows without the problems of evaluation sets.

    Args:
        train: rows with the column.
        evaluation: the sets to exclude.
        on_overlap: `"refuse"` or `"drop"` rows that an evaluation set also has.
        column: the column of the problem in `train`.
        held_out_tasks: number of rows of `TaskRows.held_out`, drawn from all evaluation sets.
        sets: the problem sets of the training rows, if they come from problem sets.

    Raises:
        ValueError: the sets overlap, or the rows cannot be compared.
    """
    if not evaluation and not sets:
        return TaskRows(train=train, held_out=None)
    one_of("on_overlap", on_overlap, ("refuse", "drop"))
    if not isinstance(train, Dataset) or column not in train.column_names:
        found = f"the columns {', '.join(train.column_names)}" if isinstance(train, Dataset) else "a stream"
        raise ValueError(
            f"training rows must have the column {column!r}, and not be a stream, to be compared with "
            f"evaluation_problem_sets, got {found}; leave evaluation_problem_sets out, or use another dataset."
        )
    others = {problems.name: list(problems.rows["problem"]) for problems in evaluation}
    dropped: dict[str, int] = {}
    if on_overlap == "drop":
        train, dropped = drop_overlap(train, others, column)
    else:
        refuse_overlap(train, others, column)
    held_out = None
    if evaluation:
        everything = concatenate_datasets([problems.rows for problems in evaluation])
        held_out = everything.shuffle(seed=0).select(range(min(held_out_tasks, len(everything))))
    facts = {
        "train": [problems.description() for problems in sets],
        "evaluation": [problems.description() for problems in evaluation],
        "overlap_dropped": dropped,
        "rows": len(train),
    }
    if sets:
        facts["fingerprint"] = fingerprint(train["uid_sha"])
    return TaskRows(train=train, held_out=held_out, facts={"problems": facts})
