"""Task rows of an environment as a `datasets.Dataset`, with training and held-out seeds that cannot overlap."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from hf_credit.environments.base import Environment

if TYPE_CHECKING:
    from datasets import Dataset

Split = Literal["train", "held_out"]

SEEDS_PER_SPLIT = 2**31
_FIRST_SEED = {"train": 0, "held_out": SEEDS_PER_SPLIT}


def task_seed(split: Split, index: int) -> int:
    """The seed of task `index` of a split: 0 to 2^31 - 1 for `"train"`, 2^31 to 2^32 - 1 for `"held_out"`.

    Raises:
        ValueError: there is no such split, or `index` is not in [0, 2^31).
    """
    if split not in _FIRST_SEED:
        raise ValueError(f"split must be one of {', '.join(_FIRST_SEED)}, got {split!r}; use one of these.")
    if not 0 <= index < SEEDS_PER_SPLIT:
        raise ValueError(f"a task's index must be from 0 to {SEEDS_PER_SPLIT - 1}, got {index}; use another one.")
    return _FIRST_SEED[split] + index


def split_of(seed: int) -> tuple[Split, int]:
    """The split that a seed is of, and its index there, as `task_seed` takes them; seeds repeat after 2^32.

    An environment whose tasks are a fixed list draws from it by this, so that held-out tasks stay apart.
    """
    half, index = divmod(seed % (2 * SEEDS_PER_SPLIT), SEEDS_PER_SPLIT)
    return ("held_out" if half else "train"), index


def tasks(
    environment: Environment[Any], split: Split = "train", size: int = 1024, start: int = 0, lazy: bool = False
) -> Dataset:
    """Tasks `start` to `start + size - 1` of a split, one a row: the column `seed` and the task's own columns.

    Args:
        environment: what to draw tasks of, by `sample_task(seed)`.
        split: `"train"` or `"held_out"`; their seeds have no value in common.
        size: the number of rows, at least 1.
        start: the first task's index.
        lazy: store seeds only and make the rest of a row whenever it is read, so that a long run starts at once. The
            rows are the same, but `column_names` has only `seed`.

    Raises:
        ValueError: there is no such split, `size` is below 1, or the split has no such tasks.
    """
    from datasets import Dataset  # takes a second, which only those who want a data set should wait

    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}; ask for one task or more.")
    first, last = task_seed(split, start), task_seed(split, start + size - 1)
    seeds = Dataset.from_dict({"seed": range(first, last + 1)})
    add_tasks = _AddTasks(environment)
    return seeds.with_transform(add_tasks) if lazy else Dataset.from_dict(add_tasks({"seed": range(first, last + 1)}))


class _AddTasks:
    """Completes columns that hold seeds. A row is mostly read many times: TRL reads those of an update anew for each
    of its slices, and a row once for every time it is played. So its task is remembered for a while."""

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.sample_task = functools.lru_cache(maxsize=4096)(environment.sample_task)

    def __reduce__(self) -> tuple[type[_AddTasks], tuple[Environment[Any]]]:
        return type(self), (self.environment,)  # what is remembered is no part of it

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        rows = [self.sample_task(seed) for seed in columns["seed"]]
        return {**columns, **{column: [row[column] for row in rows] for column in (rows[0] if rows else ())}}


def require_task_columns(columns: Iterable[str], environment: Environment[Any]) -> None:
    """Refuses columns from which `complete_task` cannot make tasks: it needs `seed`, and all task columns or none.

    Raises:
        ValueError: a column is missing.
    """
    present = list(columns)
    missing = [column for column in environment.task_columns if column not in present]
    if len(missing) == len(environment.task_columns):
        missing = []
    if "seed" not in present:
        missing.insert(0, "seed")
    if missing:
        raise ValueError(
            f"a dataset for {environment.name!r} must have the column 'seed' and all or none of "
            f"{list(environment.task_columns)}, got {present} without {missing}; add them, or make the dataset with "
            "hf_credit.environments.tasks.tasks."
        )


def complete_task(environment: Environment[Any], row: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The task and the seed of a row; a row that has only its seed gets `sample_task(seed)`.

    Raises:
        ValueError: a column is missing, or the seed is not a whole number.
    """
    require_task_columns(row, environment)
    try:
        seed = operator.index(row["seed"])
    except TypeError:
        raise ValueError(f"a row's seed must be a whole number, got {row['seed']!r}; correct it.") from None
    if all(column in row for column in environment.task_columns):
        return {column: row[column] for column in environment.task_columns}, seed
    return environment.sample_task(seed), seed
