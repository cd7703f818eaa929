"""Task rows of an environment as a `datasets.Dataset`, with training and held-out seeds that cannot overlap."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from hf_credit.environments.base import Environment
from hf_credit.validators import one_of, whole_number

if TYPE_CHECKING:
    from datasets import Dataset

Split = Literal["train", "held_out"]

SEEDS_PER_SPLIT = 2**31
_FIRST_SEED = {"train": 0, "held_out": SEEDS_PER_SPLIT}


def task_seed(split: Split, index: int) -> int:
    """The seed of task `index` of a split: 0 to 2^31 - 1 for `"train"`, 2^31 to 2^32 - 1 for `"held_out"`.

    Raises:
        ValueError: the split is unknown, or `index` is not in [0, 2^31).
    """
    return _FIRST_SEED[one_of("split", split, _FIRST_SEED)] + whole_number(
        "a task's index", index, 0, SEEDS_PER_SPLIT - 1
    )


def split_of(seed: int) -> tuple[Split, int]:
    """The split and the index of a seed, the inverse of `task_seed`; seeds repeat after 2^32.

    An environment with a fixed list of tasks chooses by it, so that held-out tasks stay separate.
    """
    half, index = divmod(seed % (2 * SEEDS_PER_SPLIT), SEEDS_PER_SPLIT)
    return ("held_out" if half else "train"), index


def tasks(
    environment: Environment[Any], split: Split = "train", size: int = 1024, start: int = 0, lazy: bool = False
) -> Dataset:
    """Tasks `start` to `start + size - 1` of a split, one a row: the column `seed` and the task's own columns.

    Args:
        environment: the environment, whose `sample_task(seed)` draws the tasks.
        split: `"train"` or `"held_out"`; their seeds are disjoint.
        size: the number of rows, at least 1.
        start: the first task's index.
        lazy: store only seeds, and draw a task when its row is read, so that a long run starts at once. The rows are
            the same, but `column_names` has only `seed`.

    Raises:
        ValueError: the split is unknown, `size` is below 1, or an index is not in [0, 2^31).
    """
    from datasets import Dataset  # takes a second to import

    whole_number("size", size, 1)
    first, last = task_seed(split, start), task_seed(split, start + size - 1)
    seeds = Dataset.from_dict({"seed": range(first, last + 1)})
    add_tasks = _AddTasks(environment)
    return seeds.with_transform(add_tasks) if lazy else Dataset.from_dict(add_tasks({"seed": range(first, last + 1)}))


class _AddTasks:
    """Adds the tasks' columns to a batch of seeds. Tasks are cached, as TRL reads a row many times: once for each
    slice of an update, and once for each time it is played."""

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.sample_task = functools.lru_cache(maxsize=4096)(environment.sample_task)

    def __reduce__(self) -> tuple[type[_AddTasks], tuple[Environment[Any]]]:
        return type(self), (self.environment,)  # without the cache

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        rows = [self.sample_task(seed) for seed in columns["seed"]]
        return {**columns, **{column: [row[column] for row in rows] for column in (rows[0] if rows else ())}}


def require_task_columns(columns: Iterable[str], environment: Environment[Any]) -> None:
    """Refuses columns that `complete_task` cannot use: it needs `seed`, and all task columns or none.

    Raises:
        ValueError: a column is missing.
    """
    present = list(columns)
    needed = ["seed", *(environment.task_columns if {*environment.task_columns} & {*present} else ())]
    if missing := [column for column in needed if column not in present]:
        raise ValueError(
            f"a dataset for {environment.name!r} must have the column 'seed' and all or none of "
            f"{list(environment.task_columns)}, got {present} without {missing}; add them, or make the dataset with "
            "hf_credit.environments.tasks.tasks."
        )


def complete_task(environment: Environment[Any], row: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The task and the seed of a row; the task is `sample_task(seed)` if the row has only a seed.

    Raises:
        ValueError: a column is missing, or the seed is not a whole number.
    """
    require_task_columns(row, environment)
    try:
        seed = operator.index(row["seed"])  # a row in torch's format has a tensor
    except TypeError:
        raise ValueError(f"a row's seed must be a whole number, got {row['seed']!r}; correct it.") from None
    if all(column in row for column in environment.task_columns):
        return {column: row[column] for column in environment.task_columns}, seed
    return environment.sample_task(seed), seed
