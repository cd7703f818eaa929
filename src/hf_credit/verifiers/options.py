r"""Keys of replies for votes and multiple choice: equal answers have equal keys.

Both keys use the final answer of a reply (`hf_credit.verifiers.extraction`) and are `None` if it has none, as when it
is empty or was cut off before its answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hf_credit.replies import spoken
from hf_credit.verifiers.answers import normal
from hf_credit.verifiers.extraction import MAX_TEXT, final_answer
from hf_credit.verifiers.numerals import number

# A letter in brackets, alone, or before punctuation: "A cat" does not choose A.
_LETTER = r"(?:\(([A-Za-z])\)|([A-Za-z])(?=[.:),]|\s*$))"
_CHOICE = re.compile(
    rf"\s*(?:(?:the\s+)?(?:\w+\s+)?(?:option|choice|answer)(?:\s+is)?\s*(?::\s*)?)?{_LETTER}", re.IGNORECASE
)
_AND = r"(?:[,;/&]|\b(?:and|or)\b)"
_ANOTHER = re.compile(  # but not the "i" of "i.e."
    rf"[\s.)]*(?:{_AND}\s*)+(?![a-z]\.[a-z])(?:{_LETTER}|[a-z](?=\s*{_AND}))", re.IGNORECASE
)
_BRACKETED = re.compile(r"\(([A-Z])\)")


def option_key(text: str) -> str | None:
    r"""Returns the capital letter of the chosen option: B for `\boxed{B}`, "the answer is (b)" and "B. Because".

    Several letters, as B, C, choose none. Without a final answer, it is the last letter in brackets.

    Args:
        text: the reply, any text.
    """
    answer = final_answer(text).answer
    form = "" if answer is None else normal(answer).text
    chosen = _CHOICE.match(form)
    if chosen is not None:
        return None if _ANOTHER.match(form, chosen.end()) else (chosen[1] or chosen[2]).upper()
    bracketed = _BRACKETED.findall(spoken(text)) if answer is None and len(text) <= MAX_TEXT else []
    return bracketed[-1] if bracketed else None


def option_score(task: Mapping[str, Any], text: str) -> float:
    """Scores a reply 1 if it chooses the right option, 0 otherwise; a scorer of a collaboration.

    Args:
        task: a row with the letter of the right option as `answer`.
        text: the reply.

    Raises:
        ValueError: `answer` is not such a letter.
    """
    right = option_key(str(task.get("answer") or ""))
    if right is None:
        raise ValueError(
            f"a row of multiple choice must have the letter of the right option as its answer, got "
            f"{repr(task.get('answer'))[:100]}; convert it."
        )
    return float(option_key(text) == right)


def answer_key(text: str) -> str | None:
    r"""Returns the normal form of a reply's final answer: 1/2, 0.5 and `\frac{1}{2}` have one key.

    It omits units and keeps a percent sign. Any other text than a rational number is its own key, so x+1 and 1+x
    differ: algebra compares pairs, and votes need a key for each answer.

    Args:
        text: the reply, any text.
    """
    answer = final_answer(text).answer
    if answer is None:
        return None
    form = normal(answer)
    value = number(form.text)
    if value is None:
        return form.key or None
    try:
        return f"{value.value}%" if value.percent else str(value.value)
    except ValueError:  # more digits than Python writes
        return form.key or None
