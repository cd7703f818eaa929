from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hf_credit.collaborations.relay import relay_tasks
from hf_credit.tasks.rows import evaluation_starts, load_splits
from hf_credit.tasks.spec import TaskSpec

RELAY = TaskSpec.of_name("relay", {"size": 4})
MATH = TaskSpec.of_name("reasoner_actor", {"domain": "math", "scorer": "operator:eq"})


# Evaluation


def test_an_evaluation_plays_held_out_tasks_of_the_relay() -> None:
    starts = evaluation_starts(RELAY.build(), 3, first=1)
    assert [start.task for start in starts] == list(relay_tasks("held_out", 3, size=4, start=1))
    assert [start.seed for start in starts] == [2**31 + 1, 2**31 + 2, 2**31 + 3]
    assert len(evaluation_starts(RELAY.build())) == 256


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., str]:
    """`rows("1 + 1", "2 + 2")` writes a file of problems."""

    def write(*problems: str) -> str:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps({"problem": one, "answer": "2"}) + "\n" for one in problems))
        return str(path)

    return write


@pytest.mark.parametrize("name", ["tasks/trian.jsonl", "missing.parquet"])
def test_a_mistyped_file_of_tasks_is_no_dataset_of_the_hub(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"a dataset's file must exist, got '{name}'; correct the path."):
        load_splits(name, "train")


def test_an_evaluation_plays_the_rows_of_a_dataset(rows: Callable[..., str]) -> None:
    path, task = rows("1 + 1", "2 + 2", "1 + 1"), MATH.build()
    starts = evaluation_starts(task, dataset=path)
    assert [start.task["problem"] for start in starts] == ["1 + 1", "2 + 2", "1 + 1"]
    assert len({start.seed for start in starts}) == 3
    assert evaluation_starts(task, 2, 1, dataset=path) == starts[1:]


def test_another_row_at_the_same_place_is_another_task(rows: Callable[..., str]) -> None:
    (first,), (second,) = (evaluation_starts(MATH.build(), dataset=rows(problem)) for problem in ("1 + 1", "1 + 2"))
    assert first.seed != second.seed


def test_more_tasks_than_rows_are_refused(rows: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match="got 2 rows for 2 tasks from row 1; play fewer tasks"):
        evaluation_starts(MATH.build(), 2, 1, dataset=rows("1", "2"))


def test_an_evaluation_plays_the_rows_of_a_set_of_problems(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "1 + 1", "answer": "It is 2.\n#### 2"}) + "\n")
    (start,) = evaluation_starts(MATH.build(), dataset=f"gsm8k/test={path}")
    assert (start.task["problem"], start.task["answer"], start.task["source"]) == ("1 + 1", "2", "gsm8k")
    with pytest.raises(ValueError, match=r"a file of problems must end in \.json"):
        evaluation_starts(MATH.build(), dataset="gsm8k/test=rows.txt")
