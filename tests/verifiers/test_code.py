"""Scores of code; the tests of `code_sandbox` cover its execution."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.verifiers.code import extract_code, isolation, score, verbatim_score

ADD = "def add(a, b):\n    return a + b\n"
TESTS = ["assert add(2, 3) == 5", "assert add(-1, 1) == 0"]

pytestmark = pytest.mark.skipif(isolation().level == "none", reason=f"nothing confines code here: {isolation()}")


@given(st.text(max_size=200))
def test_any_text_has_a_score(text: str) -> None:
    assert score({"tests": TESTS, "entry_point": "add"}, text) == 0


def test_a_row_is_scored() -> None:
    row = {"problem": "Add.", "tests": TESTS, "setup": "", "entry_point": "add", "domain": "code"}
    assert score(row, ADD) == 1
    assert score(row, "def add(a, b):\n    return 5") == 0.5
    assert score(row, "I cannot.") == 0


def test_a_row_without_tests_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one test"):
        score({"problem": "Add."}, ADD)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nnot this\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\n```\ny = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```Python3\r\nx = 1\r\n```", "x = 1\r\n"),
        ("  ```python\n  x = 1\n  ```", "x = 1\n"),
        ("1. So:\n   ```python\n   if x:\n       y = 1\n\n  z = 2\n   ```", "if x:\n    y = 1\n\nz = 2\n"),
        ("\t~~~\n\tx = 1\n\t~~~", "x = 1\n"),
        ("```python\nx = 1", "x = 1"),
        ("```python\n```", ""),
        ("x = '```'", "x = '```'"),
        ("```pythonic\nx = 1\n```", "x = 1\n"),
        ("````python\nx = '\n```\n'\n````\nDone.", "x = '\n```\n'\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("~~~\nx = 1\n```\n~~~~", "x = 1\n```\n"),
        ("<think>```python\ny = 1\n```</think>```python\nx = 1\n```", "x = 1\n"),
        ("<think>```python\ny = 1\n```", ""),
    ],
)
def test_code_is_taken_out_of_its_fence(text: str, code: str) -> None:
    assert extract_code(text) == code


def test_fences_can_stay() -> None:
    row, fenced = {"tests": TESTS}, f"```python\n{ADD}```"
    assert score(row, fenced) == 1
    assert score(row, fenced, unwrap_fences=False) == 0
    assert verbatim_score(row, fenced) == 0
    assert verbatim_score(row, ADD) == 1


def test_importing_the_scorer_imports_neither_torch_nor_a_checker_of_mathematics() -> None:
    script = "import sys, code_sandbox.unit_tests; assert not {'torch', 'sympy', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_only_verifiers_run_a_strangers_code(root: Path) -> None:
    door = re.compile(r"code_sandbox(\.(algebra|isolation|pool|unit_tests)| import)")
    source = root / "src" / "hf_credit"
    files = [path for path in source.rglob("*.py") if source / "verifiers" not in path.parents]
    assert len(files) > 50
    assert [str(path) for path in files if door.search(path.read_text())] == []
