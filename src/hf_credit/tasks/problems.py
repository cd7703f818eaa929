"""Problems to train on, and that none of them is a problem that is evaluated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, IterableDataset, concatenate_datasets

from hf_credit.data import Problems, drop_overlap, fingerprint, load_problems, refuse_overlap
from hf_credit.validators import one_of


@dataclass(frozen=True, kw_only=True)
class TaskRows:
    """Task rows of a run.

    Attributes:
        train: what is trained on.
        held_out: what is evaluated during training, `None` where nothing is.
        facts: what a run should remember of them, as plain values.
    """

    train: Dataset | IterableDataset
    held_out: Dataset | IterableDataset | None
    facts: dict[str, Any] = field(default_factory=dict)


def problem_rows(
    names: Sequence[str], evaluation_names: Sequence[str], on_overlap: str, on_missing: str, held_out_tasks: int
) -> TaskRows:
    """The rows of sets of problems, one set after the other, none of them in an evaluation set.

    Args:
        names, evaluation_names: as for `load_problems`.
        on_overlap, on_missing: `refuse` or `drop` rows that an evaluation set has too, or that have no gold answer.
        held_out_tasks: how many of the evaluation sets' rows are evaluated during training, drawn from all of them.

    Raises:
        ValueError: a set or a row is not possible, or the sets overlap.
        OSError: a file or a repository cannot be read.
    """
    sets = [load_problems(name, on_missing) for name in names]
    return without_evaluation(
        concatenate_datasets([one.rows for one in sets]),
        [load_problems(name, on_missing) for name in evaluation_names],
        on_overlap,
        "problem",
        held_out_tasks,
        sets,
    )


def without_evaluation(
    train: Dataset | IterableDataset,
    evaluation: Sequence[Problems],
    on_overlap: str,
    column: str,
    held_out_tasks: int = 0,
    sets: Sequence[Problems] = (),
) -> TaskRows:
    """Training rows, none of which is a problem of an evaluation set.

    Args:
        train: rows with the column.
        evaluation: sets that must not be trained on.
        on_overlap, held_out_tasks: as for `problem_rows`.
        column: of the problem in `train`.
        sets: where the training rows are from, if they are sets of problems.

    Raises:
        ValueError: the sets overlap, or nobody can tell.
    """
    if not evaluation and not sets:
        return TaskRows(train=train, held_out=None)
    one_of("on_overlap", on_overlap, ("refuse", "drop"))
    if not isinstance(train, Dataset) or column not in train.column_names:
        found = f"the columns {', '.join(train.column_names)}" if isinstance(train, Dataset) else "a stream"
        raise ValueError(
            f"training rows must have the column {column!r} and be no stream to be compared with "
            f"evaluation_problem_sets, got {found}; leave evaluation_problem_sets out, or take another dataset."
        )
    others = {one.name: list(one.rows["problem"]) for one in evaluation}
    dropped: dict[str, int] = {}
    if on_overlap == "drop":
        train, dropped = drop_overlap(train, others, column)
    else:
        refuse_overlap(train, others, column)
    held_out = None
    if evaluation:
        everything = concatenate_datasets([one.rows for one in evaluation])
        held_out = everything.shuffle(seed=0).select(range(min(held_out_tasks, len(everything))))
    problems = {
        "train": [one.description() for one in sets],
        "evaluation": [one.description() for one in evaluation],
        "overlap_dropped": dropped,
        "rows": len(train),
    }
    if sets:
        problems["fingerprint"] = fingerprint(train["uid_sha"])
    return TaskRows(train=train, held_out=held_out, facts={"problems": problems})
