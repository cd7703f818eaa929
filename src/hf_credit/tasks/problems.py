"""Training rows without the problems of evaluation sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, IterableDataset, concatenate_datasets

from hf_credit.data import Problems, drop_overlap, fingerprint, load_problems, refuse_overlap
from hf_credit.validators import one_of


@dataclass(frozen=True, kw_only=True)
class TaskRows:
    """Task rows of a run."""

    train: Dataset | IterableDataset
    held_out: Dataset | IterableDataset | None  # the rows of evaluations during training, or `None`
    facts: dict[str, Any] = field(default_factory=dict)  # plain values for the run's record


def problem_rows(
    names: Sequence[str], evaluation_names: Sequence[str], on_overlap: str, on_missing: str, held_out_tasks: int
) -> TaskRows:
    """The concatenated rows of problem sets, without the problems of evaluation sets.

    Args:
        names, evaluation_names: as for `load_problems`.
        on_overlap, on_missing: `"refuse"` or `"drop"` rows that an evaluation set also has, or without a gold answer.
        held_out_tasks: number of rows of `TaskRows.held_out`, drawn from all evaluation sets.

    Raises:
        ValueError: a set or a row is invalid, or the sets overlap.
        OSError: a file or a repository cannot be read.
    """
    sets = [load_problems(name, on_missing) for name in names]
    train = concatenate_datasets([problems.rows for problems in sets])
    evaluation = [load_problems(name, on_missing) for name in evaluation_names]
    return without_evaluation(train, evaluation, on_overlap, "problem", held_out_tasks, sets)


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
        on_overlap, held_out_tasks: as for `problem_rows`.
        column: the column of the problem in `train`.
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
