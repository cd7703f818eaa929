"""Rows of the known datasets in one form, recognised by their columns.

Columns of the form: `problem` (what a policy is shown), `answer` (mathematics; "" for code), `tests` and `setup` and
`entry_point` (code; empty for mathematics), `domain` ("math", "code" or "choice"), `source`, `split`, `source_id` and `uid_sha`.

- `tests`: programs that fail unless the solution is right, each of them run by itself: the assertions of MBPP; the one
  test program of HumanEval, with its call.
- `setup`: a program that comes before the solution: the imports and helpers that stand above the function in the
  prompt of HumanEval; for MBPP its own set-up, behind the classes that its tests or set-up use, which the prompt shows
  as given.
- Of multiple choice, `problem` holds the text, the question and the options, each behind its letter, and `answer` the
  right letter, as `hf_credit.verifiers.options:option_score` takes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from datasets import Features, Value
from datasets import Sequence as ListOf

from hf_credit.data.identity import uid_sha
from hf_credit.data.signatures import humaneval_setup, mbpp_problem

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
"""By which columns rows are recognised, the first that fits."""
_PLAIN_ANSWERS = {"amc23", "gaokao2023en", "minervamath"}
"""Sources with the columns of GSM8K whose answers stand alone, without a solution and `####` before them."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class RowError(ValueError):
    """A row is not a problem: it lacks what it takes to score a reply."""


def kind_of(columns: set[str], where: str, source: str = "") -> str:
    """Which dataset's form rows with these columns have.

    Args:
        columns: of a row.
        where: it is from, for the message.
        source: the dataset's name, where columns alone do not tell.

    Raises:
        ValueError: none of the known ones.
    """
    for kind, choices in KINDS.items():
        if any(needed <= columns for needed in choices):
            return "question" if kind == "gsm8k" and source in _PLAIN_ANSWERS else kind
    known = "; ".join(", ".join(sorted(needed)) for kind, choices in KINDS.items() for needed in choices[:1])
    raise ValueError(
        f"problems must have the columns of a known dataset ({known}), got {', '.join(sorted(columns))} in {where}; "
        "rename them."
    )


def to_problem(
    row: Mapping[str, Any], kind: str, source: str, split: str, place: int, example: bool = False
) -> dict[str, Any]:
    """A row in the one form.

    Args:
        row: of a dataset.
        kind: which one, as `kind_of` says.
        source, split: where it is from.
        place: of the row in its file or split, from 0: its identifier, where it has none.
        example: whether the prompt of MBPP shows the first test.

    Raises:
        RowError: the problem, the gold answer or the tests are missing, or the reference cannot be read.
    """
    if kind == "problems":
        return {name: list(row[name] or []) if name == "tests" else str(row[name] or "") for name in COLUMNS}
    made = {"answer": "", "tests": [], "setup": "", "entry_point": "", "domain": "math", "source_id": str(place)}
    if kind == "mbpp":
        made |= {"domain": "code", "source_id": str(row["task_id"]), **mbpp_problem(row, example)}
        raw = _text(row, "text") or _text(row, "prompt")
    elif kind == "humaneval":
        raw = _text(row, "prompt")
        made |= {"domain": "code", "source_id": str(row["task_id"]), "problem": raw, "entry_point": row["entry_point"]}
        made["tests"] = [f"{row['test'].strip()}\n\ncheck({row['entry_point']})\n"] if _text(row, "test") else []
        made["setup"] = humaneval_setup(raw, row["entry_point"])
    elif kind == "choice":
        raw, answer = _choice(row)
        made |= {"domain": "choice", "problem": raw, "answer": answer}
    else:
        raw = _text(row, "question" if kind in ("gsm8k", "cmath", "question") else "problem")
        made |= {"problem": raw, "answer": _answer(row, kind), "source_id": str(row.get("unique_id") or place)}
    if not raw.strip():
        raise RowError("must have a problem, got an empty one")
    if made["domain"] != "code" and not made["answer"]:
        raise RowError("must have a gold answer, got none")
    if made["domain"] == "code" and not made["tests"]:
        raise RowError("must have tests, got none")
    made |= {"source": source, "split": split, "uid_sha": uid_sha(raw)}
    return {name: made[name] for name in COLUMNS}


def _answer(row: Mapping[str, Any], kind: str) -> str:
    if kind == "gsm8k":
        return _text(row, "answer").rpartition("####")[2].strip() if "####" in _text(row, "answer") else ""
    if kind == "solution":
        return last_box(_text(row, "solution"))
    return _text(row, {"cmath": "golden", "question": "answer"}.get(kind, kind)).strip()


def _choice(row: Mapping[str, Any]) -> tuple[str, str]:
    """Text, question and lettered options as one, and the letter of the right one, which counts from 0 in the row."""
    options = [str(option) for option in row["options"] or []]
    if not 2 <= len(options) <= len(_LETTERS):
        raise RowError(f"must have from 2 to {len(_LETTERS)} options, got {len(options)}")
    right = row["correct_option"]
    if not isinstance(right, int) or isinstance(right, bool) or not 0 <= right < len(options):
        raise RowError(f"must have the place of the right option, from 0 to {len(options) - 1}, got {right!r}")
    lettered = [f"{letter}. {option}" for letter, option in zip(_LETTERS, options, strict=False)]
    told = [part for part in (_text(row, "context").strip(), _text(row, "query").strip()) if part]
    return "\n\n".join([*told, "\n".join(lettered)]) if told else "", _LETTERS[right]


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value)


def last_box(solution: str) -> str:
    r"""What the last `\\boxed{}` of a solution of MATH holds, "" if there is none; `\\boxed 5` holds 5."""
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
