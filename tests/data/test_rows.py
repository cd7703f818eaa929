from __future__ import annotations

from typing import Any

import pytest

from hf_credit.data import uid_sha
from hf_credit.data.rows import COLUMNS, RowError, kind_of, last_box, to_problem


def made(row: dict[str, Any], place: int = 4) -> dict[str, Any]:
    return to_problem(row, kind_of(set(row), "file"), "source", "split", place)


@pytest.mark.parametrize(
    ("row", "problem", "answer", "source_id"),
    [
        ({"problem": "1+1", "answer": " 2", "unique_id": "t/1"}, "1+1", "2", "t/1"),
        ({"problem": "1+1", "final_answer": "2"}, "1+1", "2", "4"),
        ({"problem": "1+1", "final_answer": 2}, "1+1", "2", "4"),
        ({"question": "1+1", "answer": "It is <<1+1=2>>2.\n#### 2"}, "1+1", "2", "4"),
        ({"question": "1+1", "golden": "2", "grade": 1}, "1+1", "2", "4"),
        ({"problem": "1+1", "solution": r"It is $\boxed{2}$.", "level": "Level 1"}, "1+1", "2", "4"),
    ],
)
def test_mathematics_is_recognised_by_its_columns(
    row: dict[str, Any], problem: str, answer: str, source_id: str
) -> None:
    found = made(row)
    assert tuple(sorted(found)) == tuple(sorted(COLUMNS))
    assert found | {"problem": problem, "answer": answer, "source_id": source_id, "domain": "math"} == found
    assert (found["tests"], found["setup"], found["entry_point"]) == ([], "", "")
    assert (found["source"], found["split"], found["uid_sha"]) == ("source", "split", uid_sha(problem))


def test_mbpp_is_code_and_identified_by_its_raw_text() -> None:
    row = {
        "text": "Add.",
        "code": "def add(a): return a",
        "task_id": 17,
        "test_setup_code": "",
        "test_list": ["assert add(1)"],
    }
    found = made(row)
    assert (found["domain"], found["answer"], found["source_id"], found["entry_point"]) == ("code", "", "17", "add")
    assert found["uid_sha"] == uid_sha("Add.")


def test_humaneval_is_one_test_with_its_call() -> None:
    row = {"task_id": "HumanEval/0", "prompt": 'import math\n\ndef f(x):\n    """ it """\n', "entry_point": "f"}
    found = made(
        {**row, "canonical_solution": "    return 1\n", "test": "\ndef check(candidate):\n    assert candidate(1)\n"}
    )
    assert found["tests"] == ["def check(candidate):\n    assert candidate(1)\n\ncheck(f)\n"]
    assert found["setup"] == "import math"
    assert found["problem"] == row["prompt"]


def test_rows_in_the_common_format_stay_unchanged() -> None:
    found = made({"problem": "1+1", "answer": "2"})
    assert to_problem(found, kind_of(set(found), "file"), "other", "other", 9) == found


def test_an_answer_of_0_is_an_answer() -> None:
    found = made({"problem": "1-1", "answer": "0"})
    assert to_problem({**found, "answer": 0}, kind_of(set(found), "file"), "other", "other", 9) == found
    assert made({"problem": "1-1", "answer": 0})["answer"] == "0"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"problem": "1+1", "answer": ""}, "must have a gold answer, got none"),
        ({"problem": "1+1", "final_answer": None}, "must have a gold answer"),
        ({"question": "1+1", "answer": "2"}, "must have a gold answer behind ####, as in GSM8K, got none"),
        ({"problem": "1+1", "solution": "It is 2."}, "must have a gold answer"),
        ({"problem": " ", "answer": "2"}, "must have a problem, got an empty text"),
        ({"text": "Add.", "code": "", "task_id": 1, "test_list": []}, "must have tests, got none"),
        ({"text": "Add.", "code": "", "task_id": 1, "test_list": None}, "must have tests, got none"),
        ({"task_id": "1", "prompt": "def f(x):\n    ''", "entry_point": "f", "test": ""}, "must have tests, got none"),
    ],
)
def test_a_row_without_problem_answer_or_tests_is_refused(row: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RowError, match=complaint):
        made(row)


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"must have the columns of a known dataset .*, got a, b in rows.json; rename"
    ):
        kind_of({"a", "b"}, "rows.json")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{1}, so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"$\boxed 5$", "5"),
        (r"\fbox{7}", "7"),
        (r"\boxed{7", ""),
        ("7", ""),
    ],
)
def test_the_last_box_of_a_solution_is_its_answer(solution: str, answer: str) -> None:
    assert last_box(solution) == answer
