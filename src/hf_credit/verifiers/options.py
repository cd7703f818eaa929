r"""What a reply chooses or answers, as a key by which equal answers are equal texts: for votes and multiple choice.

Both keys look at the final answer of a reply (`hf_credit.verifiers.extraction`), and are `None` where it has none: an
empty reply, or one that was cut off before its answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hf_credit.verifiers.answers import normal
from hf_credit.verifiers.extraction import MAX_TEXT, final_answer
from hf_credit.verifiers.numerals import number

# A letter in brackets, or alone, or with a mark behind it: "A cat" is no choice of A.
_LETTER = r"(?:\(([A-Za-z])\)|([A-Za-z])(?=[.:),]|\s*$))"
_CHOICE = re.compile(
    rf"\s*(?:(?:the\s+)?(?:\w+\s+)?(?:option|choice|answer)(?:\s+is)?\s*:?\s*)?{_LETTER}", re.IGNORECASE
)
_BRACKETED = re.compile(r"\(([A-Z])\)")


def option_key(text: str) -> str | None:
    r"""The option that a reply chooses, as a capital letter: B of `\boxed{B}`, "the answer is (b)" or "B. Because".

    A reply without a final answer chooses the last letter that it has in brackets.

    Args:
        text: the reply, any text.
    """
    answer = final_answer(text).answer
    chosen = None if answer is None else _CHOICE.match(normal(answer).text)
    if chosen is not None:
        return (chosen[1] or chosen[2]).upper()
    bracketed = _BRACKETED.findall(text) if answer is None and len(text) <= MAX_TEXT else []
    return bracketed[-1] if bracketed else None


def option_score(task: Mapping[str, Any], text: str) -> float:
    """1 if a reply chooses the right option, 0 otherwise, as a scorer of a collaboration.

    Args:
        task: a row with the letter of the right option as `answer`.
        text: the reply.

    Raises:
        ValueError: the row has no such letter.
    """
    right = option_key(str(task.get("answer") or ""))
    if right is None:
        raise ValueError(
            f"a row of multiple choice must have the letter of the right option as its answer, got "
            f"{repr(task.get('answer'))[:100]}; convert it."
        )
    return float(option_key(text) == right)


def answer_key(text: str) -> str | None:
    r"""The final answer of a reply in a normal form: equal numbers have one key, 1/2 and 0.5 and `\frac{1}{2}`.

    Units are left out, a percentage keeps its sign. What is no rational number is compared by how it is written, so
    that x+1 and 1+x are two answers: votes need a key for each answer, and only pairs can be asked about by algebra.

    Args:
        text: the reply, any text.
    """
    answer = final_answer(text).answer
    if answer is None:
        return None
    written = normal(answer)
    value = number(written.text)
    if value is not None:
        return f"{value.value}%" if value.percent else str(value.value)
    return written.key or None
