"""Code judged by unit tests: score = passed / total (paper C3, Appendix E, "Execution Sandbox").

The code and its tests run in two confined processes of `code_sandbox`, since tests in the interpreter of hostile code
prove nothing. `hf_credit.verifiers.isolation` says what the machine guarantees.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from code_sandbox.isolation import IsolationError, isolation
from code_sandbox.pool import SandboxError
from code_sandbox.unit_tests import Limits, Outcome, TestRun, run_tests

__all__ = [
    "IsolationError",
    "Limits",
    "Outcome",
    "SandboxError",
    "TestRun",
    "extract_code",
    "isolation",
    "run_tests",
    "score",
    "verbatim_score",
]

_PYTHON_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:python|py)3?[ \t]*\r?\n(.*?)(?:^[ \t]*```|\Z)", re.I | re.M | re.S)
_ANY_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.M | re.S)


def extract_code(text: str) -> str:
    """The code in an answer (Appendix E): the first block fenced as Python, else the first fenced one, else all of it.

    A fence that is never closed, as in an answer that was cut off, ends with the text.
    """
    found = _PYTHON_FENCE.search(text) or _ANY_FENCE.search(text)
    return found.group(1) if found else text


def score(task: Mapping[str, Any], text: str, *, unwrap_fences: bool = True, **options: Any) -> float:
    """passed / total of an answer to a task, as a collaboration's scorer: `hf_credit.verifiers.code:score`.

    The paper's prompt forbids fences (Appendix B) and its evaluator unwraps them (Appendix E); so does this.

    Args:
        task: a row with `tests`, a list of snippets, and maybe `setup` and `entry_point`.
        text: the answer.
        unwrap_fences: whether `extract_code` is applied; without it a fence is a syntax error, which scores 0.
        **options: of `run_tests`.

    Raises:
        ValueError: the row has no tests. The paper's evaluator scores such a row 0, which would train on a fault of
            the data set as if it were the model's.
        IsolationError: as in `run_tests`.
        SandboxError: as in `run_tests`.
    """
    code = extract_code(text) if unwrap_fences else text
    options = {"setup": task.get("setup") or "", "entry_point": task.get("entry_point") or None, **options}
    return run_tests(code, task.get("tests") or [], **options).score


def verbatim_score(task: Mapping[str, Any], text: str) -> float:
    """`score` of the text as it stands: an answer in fences scores 0."""
    return score(task, text, unwrap_fences=False)
