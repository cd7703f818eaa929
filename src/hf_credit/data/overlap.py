r"""Keeps problems of an evaluation out of training, near copies included.

The paper (C3, Appendix F) asks that no `uid_sha` of a training pool is in an evaluation split. A copy of a problem
seldom keeps every blank, so here two problems are the same if their normal forms are, which is the case wherever their
`uid_sha` are the same.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from datasets import Dataset

SIGNATURE = "\n\nImplement this signature:\n\n"
"""What stands between the text of a code problem and the signature that its prompt carries."""

_LAYOUT = re.compile(
    r"\\(?:[,;:!]|(?:quad|qquad|thinspace|displaystyle|textstyle|left|right|bigl?|bigr?|Bigl?|Bigr?)(?![A-Za-z])|[()\[\]])"
    r"|[$~{}]"
)
_SAME = str.maketrans(
    {"。": ".", "、": ",", "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "`": "'"}
)


class OverlapError(ValueError):
    """A training set holds a problem of an evaluation set."""


class Overlap(NamedTuple):
    """A problem of the training set that an evaluation set has too.

    Attributes:
        row: its place in the training set, from 0.
        name: of the evaluation set.
        other: its place there.
    """

    row: int
    name: str
    other: int


def normal_form(problem: str) -> str:
    r"""A problem's text without what copies differ in, though they ask the same.

    Unicode form KC (fullwidth signs become plain, ligatures letters), small letters, and without: white space, signs
    that cannot be seen, LaTeX for blanks and the size of brackets (`\,` `\!` `\quad` `\left`), dollar signs and other
    marks of a formula, and braces. `\dfrac` is `\frac`; quotes and dashes are of one kind. The signature that our
    prompts carry is no part of it.

    Args:
        problem: its text, as in the column `problem`.
    """
    text = problem.split(SIGNATURE)[0].replace("\r", " ")
    text = unicodedata.normalize("NFKC", text).translate(_SAME)
    text = re.sub(r"\\([dt])frac(?![A-Za-z])", r"\\frac", text.replace("\\\\", "\n"))
    text = re.sub(r"\\\s", "", _LAYOUT.sub("", text))
    kept = (sign for sign in text if not sign.isspace() and unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFKC", "".join(kept).casefold())


def find_overlap(
    train: Dataset | Sequence[str], evaluation: Mapping[str, Dataset | Sequence[str]], column: str = "problem"
) -> list[Overlap]:
    """The problems of a training set that an evaluation set has too, in the order of the training set.

    Args:
        train: rows with the column, or the problems themselves.
        evaluation: the same of each evaluation set, by name.
        column: which one holds the problem.
    """
    known: dict[bytes, tuple[str, int]] = {}
    for name, rows in evaluation.items():
        for place, problem in enumerate(_problems(rows, column)):
            known.setdefault(_digest(problem), (name, place))
    found = ((row, known.get(_digest(problem))) for row, problem in enumerate(_problems(train, column)))
    return [Overlap(row, *match) for row, match in found if match is not None]


def refuse_overlap(
    train: Dataset | Sequence[str], evaluation: Mapping[str, Dataset | Sequence[str]], column: str = "problem"
) -> None:
    """Refuses a training set that holds a problem of an evaluation set, or a near copy of one; see `normal_form`.

    Args:
        train: rows with the column, or the problems themselves.
        evaluation: the same of each evaluation set, by name.
        column: which one holds the problem.

    Raises:
        OverlapError: there is one; the message says how many, and shows the first.
    """
    found = find_overlap(train, evaluation, column)
    if not found:
        return
    first = found[0]
    own, other = _problems(train, column)[first.row], _problems(evaluation[first.name], column)[first.other]
    shares = {name: sum(one.name == name for one in found) for name in evaluation}
    where = ", ".join(f"{count:,} in {name}" for name, count in shares.items() if count)
    raise OverlapError(
        f"a training set must hold no problem of an evaluation set, got {len(found):,} of its {len(train):,} rows "
        f"({where}), the first {own[:120]!r} in row {first.row}, which is {other[:120]!r} in row {first.other} of "
        f"{first.name}; drop them (in a recipe: on_overlap: drop), or train on another set."
    )


def drop_overlap(
    train: Dataset, evaluation: Mapping[str, Dataset | Sequence[str]], column: str = "problem"
) -> tuple[Dataset, dict[str, int]]:
    """A training set without the problems that an evaluation set has too, and how many those were, by set.

    Args:
        train, evaluation, column: as for `refuse_overlap`.
    """
    found = find_overlap(train, evaluation, column)
    if not found:
        return train, {}
    gone = {one.row for one in found}
    kept = train.select([row for row in range(len(train)) if row not in gone])
    return kept, {name: sum(one.name == name for one in found) for name in dict.fromkeys(one.name for one in found)}


def _problems(rows: Dataset | Sequence[str], column: str) -> Sequence[str]:
    return list(rows[column]) if isinstance(rows, Dataset) else rows


def _digest(problem: str) -> bytes:
    return hashlib.sha256(normal_form(problem).encode("utf-8", "surrogatepass")).digest()
