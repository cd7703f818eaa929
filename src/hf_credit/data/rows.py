"""Converts rows of the known datasets, which it recognises by their columns, into a common format.

Columns: `problem` (the prompt), `answer` (mathematics; "" for code), `tests`, `setup` and `entry_point` (code; empty
for mathematics), `domain` ("math", "code" or "choice"), `source`, `split`, `source_id` and `uid_sha`.

- `tests`: programs that run separately and fail unless the solution is right: the assertions of MBPP, or the test
  program of HumanEval with its call.
- `setup`: the program before the solution. For HumanEval, the imports and helpers above the function in the prompt;
  for MBPP, the classes that its tests or set-up use, which the prompt shows as given, then its own set-up.
- For multiple choice, `problem` has the text, the question and the lettered options, and `answer` the right letter, as
  `hf_credit.verifiers.options:option_score` expects it.
"""

from __future__ import annotations

import ast
import hashlib
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from datasets import Features, Value
from datasets import Sequence as ListOf

from hf_credit.data.overlap import SIGNATURE


def uid_sha(text: str) -> str:
    r"""Returns the identifier of a problem: hex SHA-256 of its text in form C, newlines as `\n`, right-stripped.

    Paper C3, Appendix F. The paper leaves open the hash (here SHA-256, as for splits) and whether blanks are stripped
    from each line or from the whole text (here the text).

    Args:
        text: the raw input field of the dataset.
    """
    unified = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return hashlib.sha256(unified.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(identifiers: Iterable[str]) -> str:
    r"""Returns the fingerprint of a split: SHA-256, in hexadecimal, of its sorted identifiers.

    Paper C3, Appendix F. The paper leaves open how the array becomes bytes: here in ASCII, each identifier followed by
    `\n`.

    Args:
        identifiers: the `uid_sha` of every problem in any order, duplicates included.
    """
    return hashlib.sha256("".join(f"{uid}\n" for uid in sorted(identifiers)).encode("ascii")).hexdigest()


COLUMNS = ("problem", "answer", "tests", "setup", "entry_point", "domain", "source", "split", "source_id", "uid_sha")
FEATURES = Features({name: ListOf(Value("string")) if name == "tests" else Value("string") for name in COLUMNS})

KINDS: dict[str, tuple[frozenset[str], ...]] = {
    "problems": (frozenset(COLUMNS),),
    "mbpp": (frozenset({"text", "code", "test_list"}), frozenset({"prompt", "code", "test_list"})),
    "humaneval": (frozenset({"prompt", "entry_point", "test"}),),
    "cmath": (frozenset({"question", "golden"}),),
    "choice": (frozenset({"context", "query", "options", "correct_option"}),),
    "gsm8k": (frozenset({"question", "answer"}),),
    "final_answer": (frozenset({"problem", "final_answer"}),),
    "answer": (frozenset({"problem", "answer"}),),
    "solution": (frozenset({"problem", "solution"}),),
}
"""The columns of each kind of row; the first kind that fits applies."""
_PLAIN_ANSWERS = {"amc23", "gaokao2023en", "minervamath"}
"""Sources with the columns of GSM8K whose answers have no solution and `####` before them."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class RowError(ValueError):
    """A row has no problem, gold answer or tests, or its program cannot be read."""


def kind_of(columns: set[str], where: str, source: str = "") -> str:
    """Returns the kind of rows with these columns.

    Args:
        columns: of a row.
        where: the origin of the row, for the message.
        source: the dataset's name, which decides between kinds with the same columns.

    Raises:
        ValueError: no kind has these columns.
    """
    for kind, choices in KINDS.items():
        if any(needed <= columns for needed in choices):
            return "question" if kind == "gsm8k" and source in _PLAIN_ANSWERS else kind
    known = "; ".join(", ".join(sorted(needed)) for kind, choices in KINDS.items() for needed in choices[:1])
    raise ValueError(
        f"problems must have the columns of a known dataset ({known}), got {', '.join(sorted(columns))} in {where}; "
        "rename them."
    )


def to_problem(row: Mapping[str, Any], kind: str, source: str, split: str, index: int) -> dict[str, Any]:
    """Converts a row into the common format.

    Args:
        row: of a dataset.
        kind: from `kind_of`.
        source, split: the origin of the row.
        index: of the row in its file or split, from 0; its identifier if the row has none.

    Raises:
        RowError: the problem, the gold answer or the tests are missing, or the reference cannot be read.
    """
    problem: dict[str, Any] = dict.fromkeys(("answer", "setup", "entry_point"), "")
    problem |= {"tests": [], "domain": "math", "source_id": str(index)}
    given: dict[str, Any] = {"source": source, "split": split}
    if kind == "problems":
        given = {name: list(row[name] or []) if name == "tests" else _text(row, name) for name in COLUMNS}
        problem, raw = given, given["problem"]
    elif kind == "mbpp":
        problem |= {"domain": "code", "source_id": str(row.get("task_id", index)), **mbpp_problem(row)}
        raw = _text(row, "text") or _text(row, "prompt")
    elif kind == "humaneval":
        raw, name = _text(row, "prompt"), row["entry_point"]
        problem |= {"domain": "code", "source_id": str(row["task_id"]), "problem": raw, "entry_point": name}
        problem["tests"] = [f"{row['test'].strip()}\n\ncheck({name})\n"] if _text(row, "test") else []
        problem["setup"] = humaneval_setup(raw, name)
    elif kind == "choice":
        raw, answer = _choice(row)
        problem |= {"domain": "choice", "problem": raw, "answer": answer}
    else:
        raw = _text(row, "question" if kind in ("gsm8k", "cmath", "question") else "problem")
        problem |= {"problem": raw, "answer": _answer(row, kind), "source_id": str(row.get("unique_id") or index)}
    if not raw.strip():
        raise RowError("must have a problem, got an empty text")
    if problem["domain"] != "code" and not problem["answer"]:
        behind = " behind ####, as in GSM8K" if kind == "gsm8k" else ""
        raise RowError(f"must have a gold answer{behind}, got none")
    if problem["domain"] == "code" and not problem["tests"]:
        raise RowError("must have tests, got none")
    problem |= {"uid_sha": uid_sha(raw), **given}
    return {name: problem[name] for name in COLUMNS}


def _answer(row: Mapping[str, Any], kind: str) -> str:
    if kind == "gsm8k":
        return _text(row, "answer").rpartition("####")[2].strip() if "####" in _text(row, "answer") else ""
    if kind == "solution":
        return last_box(_text(row, "solution"))
    return _text(row, {"cmath": "golden", "question": "answer"}.get(kind, kind)).strip()


def _choice(row: Mapping[str, Any]) -> tuple[str, str]:
    options = [str(option) for option in row["options"] or []]
    if not 2 <= len(options) <= len(_LETTERS):
        raise RowError(f"must have from 2 to {len(_LETTERS)} options, got {len(options)}")
    right = row["correct_option"]
    if not isinstance(right, int) or isinstance(right, bool) or not 0 <= right < len(options):
        raise RowError(f"must have the index of the right option, from 0 to {len(options) - 1}, got {right!r}")
    lettered = [f"{letter}. {option}" for letter, option in zip(_LETTERS, options, strict=False)]
    parts = [part for part in (_text(row, "context").strip(), _text(row, "query").strip()) if part]
    return "\n\n".join([*parts, "\n".join(lettered)]) if parts else "", _LETTERS[right]


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value)


def last_box(solution: str) -> str:
    r"""Returns the content of a MATH solution's last `\\boxed{}`, "" if there is none; `\\boxed 5` contains 5."""
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return ""
    body = re.sub(r"^\\(?:boxed|fbox)\s*", "", solution[start:])
    if not body.startswith("{"):
        return re.split(r"[$\s.]", body, maxsplit=1)[0]
    depth = 0
    for sign in re.finditer(r"\\.|[{}]", body, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign.group(), 0)
        if depth == 0:
            return body[1 : sign.start()].strip()
    return ""


def mbpp_problem(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns problem, tests, setup and entry_point of a row of MBPP.

    The prompt has the text, the signature, and the reference solution's classes that the tests use, such as `Node`.

    Args:
        row: with text (or prompt), code, test_list and test_setup_code (or test_imports).

    Raises:
        RowError: the reference solution cannot be parsed, or has no function that the tests call.
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
        raise RowError("must have a reference solution with a function that the tests call, got none")
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
        RowError: the prompt has no such function, or is not Python.
    """
    lines = prompt.splitlines(keepends=True)
    for node in reversed(_parse(prompt + "\n    pass\n").body):
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            return "".join(lines[: node.lineno - 1]).strip()
    raise RowError(f"must have the function {entry_point} in its prompt, got none")


def signature(function: ast.FunctionDef) -> str:
    """Returns a function's `def` line: name, arguments, defaults and annotations."""
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"def {function.name}({ast.unparse(function.args)}){returned}:"


def _parse(program: str) -> ast.Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes in the dataset's programs
            return ast.parse(textwrap.dedent(program))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RowError(f"must have a program that Python can parse, got {error}") from None


def _lines(program: Any) -> str:
    return str(program).replace("\r\n", "\n").replace("\r", "\n")
