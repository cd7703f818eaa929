"""Scores code by unit tests: score = passed / total (paper C3, Appendix E, "Execution Sandbox").

The code and its tests run in two confined processes of `code_sandbox`: hostile code can forge the result of tests in
its own interpreter. `isolation` reports what the machine guarantees.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from code_sandbox.isolation import isolation
from code_sandbox.unit_tests import run_tests
from hf_credit.replies import spoken

__all__ = ["extract_code", "isolation", "run_tests", "score", "verbatim_score"]

_FENCE = r"^([ \t]*+)(`{3,}+|~{3,}+)%s\n(.*?)(?:^[ \t]*+\2|\Z)"
_PYTHON_FENCE = re.compile(_FENCE % r"[ \t]*(?:python|py)3?[ \t]*\r?", re.I | re.M | re.S)
_ANY_FENCE = re.compile(_FENCE % r"[^\n`]*+", re.M | re.S)


def extract_code(text: str) -> str:
    """Returns the first block fenced as Python, else the first fenced block, else the whole answer (Appendix E).

    A fence is three or more backticks or tildes, closed by at least as many. An unclosed one, as in a truncated
    answer, ends with the text. Lines lose the fence's indent, as in CommonMark. Thoughts are no part of the answer.
    """
    text = spoken(text)
    block = _PYTHON_FENCE.search(text) or _ANY_FENCE.search(text)
    if not block:
        return text
    lines = block[3].splitlines(keepends=True)
    return "".join(line[min(len(block[1]), len(line) - len(line.lstrip(" \t"))) :] for line in lines)


def score(task: Mapping[str, Any], text: str, *, unwrap_fences: bool = True, **options: Any) -> float:
    """Scores an answer by passed / total; the scorer `hf_credit.verifiers.code:score` of a collaboration.

    Fences are unwrapped as in the paper's evaluator (Appendix E), although its prompt forbids them (Appendix B).

    Args:
        task: a row with `tests`, a list of snippets, and optionally `setup` and `entry_point`.
        text: the answer.
        unwrap_fences: whether to apply `extract_code`; without it a fence is a syntax error, which scores 0.
        **options: of `run_tests`.

    Raises:
        ValueError: the row has no tests. The paper's evaluator scores such a row 0, which would blame the policy for
            a fault of the dataset.
        IsolationError: as in `run_tests`.
        SandboxError: as in `run_tests`.
    """
    code = extract_code(text) if unwrap_fences else spoken(text)
    options = {"setup": task.get("setup") or "", "entry_point": task.get("entry_point") or None, **options}
    return run_tests(code, task.get("tests") or [], **options).score


def verbatim_score(task: Mapping[str, Any], text: str) -> float:
    """Scores the text without its thoughts, otherwise unchanged, so that an answer in fences scores 0."""
    return score(task, text, unwrap_fences=False)
