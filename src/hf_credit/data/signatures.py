"""Prompts for code: the task, the signature and the given classes, never the solution.

The text of MBPP does not name the function that its tests call, so hardly any answer could pass. The name, arguments
and defaults come from the reference solution's `def` line.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Mapping
from typing import Any

from hf_credit.data.overlap import SIGNATURE


def mbpp_problem(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns problem, tests, setup and entry_point of a row of MBPP.

    The prompt has the text, the signature, and the reference solution's classes that the tests use, such as `Node`.

    Args:
        row: with text (or prompt), code, test_list and test_setup_code (or test_imports).

    Raises:
        ValueError: the reference solution cannot be parsed, or has no function that the tests call.
    """
    text = str(row.get("text") or row.get("prompt") or "")
    tests = [_lines(test) for test in row.get("test_list") or []]
    own_setup = _lines(row.get("test_setup_code") or "\n".join(row.get("test_imports") or []))
    if not tests:
        return {"problem": text, "tests": [], "setup": own_setup, "entry_point": ""}
    solution = _parse(_lines(row["code"]))
    used = {one.id for code in (*tests, own_setup) for one in ast.walk(_parse(code)) if isinstance(one, ast.Name)}
    functions = [node for node in solution.body if isinstance(node, ast.FunctionDef) and node.name in used]
    classes = [node for node in solution.body if isinstance(node, ast.ClassDef) and node.name in used]
    if not functions:
        raise ValueError("must have a reference solution with a function that the tests call, got none")
    given = [ast.unparse(node) for node in classes]
    signatures = "\n".join(map(signature, functions))
    return {
        "problem": "\n\n".join([f"{text.strip()}{SIGNATURE}{signatures}", *(["Given is:", *given] if given else [])]),
        "tests": tests,
        "setup": "\n\n".join([*given, own_setup]).strip(),
        "entry_point": functions[0].name,
    }


def humaneval_setup(prompt: str, entry_point: str) -> str:
    """Returns the imports and helpers above the requested function in a prompt of HumanEval.

    Args:
        prompt: ends with the function's signature and docstring.

    Raises:
        ValueError: the prompt has no such function, or is not Python.
    """
    lines = prompt.splitlines(keepends=True)
    for node in reversed(_parse(prompt + "\n    pass\n").body):
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            return "".join(lines[: node.lineno - 1]).strip()
    raise ValueError(f"must have the function {entry_point} in its prompt, got none")


def signature(function: ast.FunctionDef) -> str:
    """Returns a function's `def` line: name, arguments, defaults and annotations."""
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"def {function.name}({ast.unparse(function.args)}){returned}:"


def _parse(program: str) -> ast.Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes in the dataset's programs
            return ast.parse(textwrap.dedent(program))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"must have a program that Python can parse, got {error}") from None


def _lines(program: Any) -> str:
    return str(program).replace("\r\n", "\n").replace("\r", "\n")
