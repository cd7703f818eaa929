from __future__ import annotations

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.data import OverlapError, drop_overlap, normal_form, refuse_overlap, uid_sha
from hf_credit.data.overlap import SIGNATURE, find_overlap

PROBLEM = "Compute $\\frac{1}{2} + x$, where x = 3."


@pytest.mark.parametrize(
    "copy",
    [
        "compute $\\frac{1}{2} + X$, where x = 3.",
        "  Compute   $\\frac{1}{2}+x$,\n\twhere x\u00a0=\u30003.\r\n",
        "Ｃｏｍｐｕｔｅ $\\frac{1}{2}＋x$，where x＝３．",
        "Com\u200bpute\ufeff $\\frac{1}{2} + x$, where x = 3\u00ad.",
        "Compute \\(\\dfrac{1}{2}\\, +\\; x\\), where x = 3.",
        "Compute \\[\\tfrac{1}{2} + \\!x\\quad\\], where $x = 3$.",
        "Compute $\\left.\\frac{1}{2} + x\\right.$, where x = 3.".replace("\\left.", "\\left").replace(
            "\\right.", "\\right"
        ),
        "Compute $\\frac12 + x$, where x = 3.",
    ],
)
def test_near_copies_have_the_same_normal_form(copy: str) -> None:
    assert normal_form(copy) == normal_form(PROBLEM)
    assert uid_sha(copy) != uid_sha(PROBLEM)


@pytest.mark.parametrize(
    "other",
    [
        PROBLEM.replace("+", "-"),
        PROBLEM.replace("3", "4"),
        PROBLEM.replace("2", "3"),
        PROBLEM.replace("x = 3", "x = -3"),
    ],
)
def test_another_problem_has_another_normal_form(other: str) -> None:
    assert normal_form(other) != normal_form(PROBLEM)


def test_the_normal_form_omits_the_signature_of_a_prompt() -> None:
    assert normal_form(f"Add two numbers.{SIGNATURE}def add(a, b):") == normal_form("add two  numbers.")


@given(st.text(max_size=40), st.sampled_from(["\n", "  ", " ", "\u3000", "\u200b"]))
def test_equal_identifiers_have_equal_normal_forms(text: str, end: str) -> None:
    assert normal_form(text + end) == normal_form(text)
    assert normal_form(normal_form(text)) == normal_form(text) or "\\" in text


def rows(*problems: str) -> Dataset:
    return Dataset.from_list([{"problem": one} for one in problems])


def test_sets_without_a_common_problem_pass() -> None:
    refuse_overlap(rows("1 + 1", "2 + 2"), {"math500/test": rows("1 - 1"), "empty": []})


def test_the_error_counts_overlaps_and_shows_the_first() -> None:
    with pytest.raises(OverlapError) as error:
        refuse_overlap(rows("a", "B  c", "d", "e"), {"one/test": rows("x", "b c"), "two/test": rows("E", "y")})
    assert str(error.value) == (
        "a training set must contain no problem of an evaluation set, got 2 of its 4 rows (1 in one/test, 1 in "
        "two/test), the first 'B  c' in row 1, which is 'b c' in row 1 of one/test; drop them (in a recipe: "
        "on_overlap: drop), or train on another set."
    )


def test_overlapping_problems_can_be_dropped_and_are_counted() -> None:
    kept, dropped = drop_overlap(rows("a", "B", "b", "c"), {"one/test": rows("b"), "two/test": rows("c", "x")})
    assert kept["problem"] == ["a"]
    assert dropped == {"one/test": 2, "two/test": 1}
    assert find_overlap(kept, {"one/test": rows("b")}) == []


def test_problems_may_be_given_without_rows_and_by_another_column() -> None:
    question = Dataset.from_list([{"question": "1 + 1"}])
    with pytest.raises(OverlapError, match="got 1 of its 1 rows"):
        refuse_overlap(question, {"gsm8k/test": ["1+1"]}, column="question")
