from __future__ import annotations

import ast
from typing import Any

import pytest

from hf_credit.data.rows import humaneval_setup, mbpp_problem, signature


def mbpp(code: str, *tests: str, **others: Any) -> dict[str, Any]:
    return {
        "text": "Write a function to add.",
        "code": code,
        "test_list": list(tests),
        "test_setup_code": "",
        **others,
    }


ADD = "import os\r\ndef helper(secret): return secret\r\n"
ADD += "def add(a, b=2, *rest, c: int = 3) -> int:\r\n\treturn helper(a) + b\r\n"


def test_the_prompt_carries_the_signature_and_nothing_of_the_solution() -> None:
    made = mbpp_problem(mbpp(ADD, "assert add(1) == 3"))
    assert made == {
        "problem": "Write a function to add.\n\nImplement this signature:\n\ndef add(a, b=2, *rest, c: int=3) -> int:",
        "tests": ["assert add(1) == 3"],
        "setup": "",
        "entry_point": "add",
    }


def test_classes_that_the_tests_speak_of_are_given() -> None:
    code = "class Node:\n  def __init__(self, data):\n    self.data = data\ndef height(node):\n  return 1"
    made = mbpp_problem(mbpp(code, "assert height(root) == 1", test_setup_code="root = Node(1)\r\n"))
    given = "class Node:\n\n    def __init__(self, data):\n        self.data = data"
    assert made["problem"].endswith(f"def height(node):\n\nGiven is:\n\n{given}")
    assert made["setup"] == f"{given}\n\nroot = Node(1)"


def test_the_sanitized_columns_work_too() -> None:
    row = {
        "prompt": "Add.",
        "code": "def add(a): return a",
        "test_list": ["assert add(1) == 1"],
        "test_imports": ["import math"],
    }
    made = mbpp_problem(row)
    assert made["setup"] == "import math"
    assert made["problem"].startswith("Add.\n\nImplement")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def add(a:", "a program that Python can parse"),
        ("def other(a): return a", "a function that the tests call, got none"),
    ],
)
def test_an_unusable_reference_solution_is_refused(code: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        mbpp_problem(mbpp(code, "assert add(1) == 1"))


def test_the_setup_is_the_code_above_the_function() -> None:
    prompt = 'import math\n\ndef poly(x):\n    return x\n\n\ndef find_zero(xs: list):\n    """ find it """\n'
    assert humaneval_setup(prompt, "find_zero") == "import math\n\ndef poly(x):\n    return x"
    assert humaneval_setup('def f(x):\n    """ it """\n', "f") == ""
    with pytest.raises(ValueError, match="must have the function g in its prompt"):
        humaneval_setup(prompt, "g")


def test_a_signature_is_the_line_of_its_definition() -> None:
    (function,) = ast.parse("def f(a, /, b, *, c=(1, 2), **d): pass").body
    assert isinstance(function, ast.FunctionDef)
    assert signature(function) == "def f(a, /, b, *, c=(1, 2), **d):"
