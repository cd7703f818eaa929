r"""Keeps evaluation problems and their near copies out of training.

The paper (C3, Appendix F) requires that no `uid_sha` of a training pool is in an evaluation split. Copies seldom keep
every blank, so here two problems are the same if their normal forms are equal; equal `uid_sha` imply that.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from datasets import Dataset

SIGNATURE = "\n\nImplement this signature:\n\n"
"""The separator of a code problem's text and the signature in its prompt."""

_LAYOUT = re.compile(
    r"\\(?:[,;:!]|(?:quad|qquad|thinspace|displaystyle|textstyle|left|right|bigl?|bigr?|Bigl?|Bigr?)(?![A-Za-z])|[()\[\]])"
    r"|[$~{}]"
)
_SAME = str.maketrans(
    {"。": ".", "、": ",", "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "`": "'"}
)


class OverlapError(ValueError):
    """A training set contains a problem of an evaluation set."""


class Overlap(NamedTuple):
    """A problem in both the training set and an evaluation set."""

    row: int  # its index in the training set, from 0
    name: str  # of the evaluation set
    other: int  # its index there


def normal_form(problem: str) -> str:
    r"""Returns a problem's text without the details in which copies differ.

    The text is in Unicode form KC (fullwidth signs become plain, ligatures become letters) and in lower case. It omits
    white space, invisible characters, LaTeX for blanks and sizes of brackets (`\,` `\!` `\quad` `\left`), formula
    delimiters, braces, and the signature in a code prompt. `\dfrac` becomes `\frac`, and quotes and dashes become one
    kind each.
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
    """Returns the problems of a training set that an evaluation set has too, in the order of the training set.

    Args:
        train: rows with the column, or the problems themselves.
        evaluation: the rows or problems of each evaluation set, by name.
    """
    known: dict[bytes, tuple[str, int]] = {}
    for name, rows in evaluation.items():
        for index, problem in enumerate(_problems(rows, column)):
            known.setdefault(_digest(problem), (name, index))
    matches = ((row, known.get(_digest(problem))) for row, problem in enumerate(_problems(train, column)))
    return [Overlap(row, *match) for row, match in matches if match is not None]


def refuse_overlap(
    train: Dataset | Sequence[str], evaluation: Mapping[str, Dataset | Sequence[str]], column: str = "problem"
) -> None:
    """Refuses a training set with a problem of an evaluation set or a near copy of it; see `normal_form`.

    Args:
        train, evaluation, column: as for `find_overlap`.

    Raises:
        OverlapError: such problems exist; the message has their number and shows the first.
    """
    overlaps = find_overlap(train, evaluation, column)
    if not overlaps:
        return
    first = overlaps[0]
    problem, other = _problems(train, column)[first.row], _problems(evaluation[first.name], column)[first.other]
    counts = Counter(overlap.name for overlap in overlaps)
    where = ", ".join(f"{counts[name]:,} in {name}" for name in evaluation if counts[name])
    raise OverlapError(
        f"a training set must contain no problem of an evaluation set, got {len(overlaps):,} of its {len(train):,} "
        f"rows ({where}), the first {problem[:120]!r} in row {first.row}, which is {other[:120]!r} in row "
        f"{first.other} of {first.name}; drop them (in a recipe: on_overlap: drop), or train on another set."
    )


def drop_overlap(
    train: Dataset, evaluation: Mapping[str, Dataset | Sequence[str]], column: str = "problem"
) -> tuple[Dataset, dict[str, int]]:
    """Returns a training set without the problems of evaluation sets, and the number dropped for each of those sets.

    Args:
        train, evaluation, column: as for `find_overlap`.
    """
    overlaps = find_overlap(train, evaluation, column)
    dropped = {overlap.row for overlap in overlaps}
    kept = train.select([row for row in range(len(train)) if row not in dropped]) if dropped else train
    return kept, dict(Counter(overlap.name for overlap in overlaps))


def _problems(rows: Dataset | Sequence[str], column: str) -> Sequence[str]:
    return list(rows[column]) if isinstance(rows, Dataset) else rows


def _digest(problem: str) -> bytes:
    return hashlib.sha256(normal_form(problem).encode("utf-8", "surrogatepass")).digest()
