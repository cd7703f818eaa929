r"""What an answer says, and whether two say the same, as far as it takes no algebra (paper C3, Appendix E).

Answers have a thousand characters at most, so nothing here takes long or much.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from fractions import Fraction
from typing import NamedTuple


class Answer(NamedTuple):
    """An answer in a form that can be compared.

    Attributes:
        text: without marks of formulas, units and spaces of layout; blanks stand where they may matter.
        key: the same without any blank.
    """

    text: str
    key: str


FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "lg", "exp", "sqrt", "pi",
    "deg", "max", "min", "gcd", "lcm", "mod", "det",
})  # fmt: skip
"""Words that are mathematics."""

TEXT_GROUP = r"\\(?:text|mbox|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|texttt)\s*\{([^{}]*)\}"
"""Words in a formula, as a pattern."""

_NUMBER_WORDS = (
    ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
)  # fmt: skip
_PARTS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_COMMANDS = {
    "π": r"\pi", "∞": r"\infty", "∪": r"\cup", "∩": r"\cap", "≤": r"\le", "≥": r"\ge", "±": r"\pm", "×": r"\times",
    "·": r"\cdot", "÷": "/", "√": r"\sqrt", "°": r"^\circ", "≈": r"\approx", "∈": r"\in",
}  # fmt: skip
_SIGNS = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # fullwidth
    **dict.fromkeys([0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF], ""),
    **{ord(sign): f"^{{{place}}}" for place, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{ord(sign): f" {value}" for sign, value in _PARTS.items()},
    **{ord(sign): f" {command} " for sign, command in _COMMANDS.items()},
    **dict.fromkeys(map(ord, "−–—﹣"), "-"),
    ord("⁄"): "/",
    ord("、"): ",",
    ord("￥"): "¥",
    0x3000: " ",
}


def flat(text: str) -> str:
    """Fullwidth signs become plain, signs of mathematics commands, and what cannot be seen goes.

    Args:
        text: of any length; this takes time in proportion to it.
    """
    return text if text.isascii() else text.translate(_SIGNS)


def normal(answer: str) -> Answer:
    r"""An answer without marks of formulas, layout, currency, degrees and units, and without a final full stop.

    `\dfrac12` becomes `\frac{1}{2}`, `90^\circ` 90, `\text{Evelyn}` Evelyn, `15\mbox{ cm}^2` 15, `10,\!080` 10,080.

    Args:
        answer: as it was written, of `MAX_ANSWER` characters at most.
    """
    text = unicodedata.normalize("NFKC", flat(answer))
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    text = _UNITS.sub(lambda unit: _without_unit(text, unit), text)
    text = re.sub(r"\s+", " ", text).strip().strip("*`")
    text = re.sub(r"[\s.,;:。]+$", "", text)
    while text.startswith("{") and text.endswith("}") and _closes_at_end(text):
        text = text[1:-1].strip()
    key = re.sub(r"\s", "", text)
    if not key:  # nothing of it is left, as of \phantom{09}
        text = answer.strip().strip("$")
        key = re.sub(r"\s", "", text)
    return Answer(text, key)


def _without_unit(text: str, unit: re.Match[str]) -> str:
    """What a group of words becomes: nothing behind a number, a comma for "and", itself where it is the answer."""
    words = unit.group(1)
    if re.fullmatch(r"[\s,;]*(?:and|or)?[\s,;]*", words):
        return "," if words.strip() else " "
    before = text[: unit.start()]
    is_unit = re.search(r"\d|\\pi", before) and not re.search(r"\d|[ap]\.?m", words)
    return " " if is_unit else f" {words}{unit.group(2) or ''} "


def _closes_at_end(text: str) -> bool:
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return place == len(text) - 1
    return False


_UNITS = re.compile(TEXT_GROUP + r"(\s*\^\s*(?:\{\d\}|\d))?")
_REWRITES = [
    (re.compile(pattern), new)
    for pattern, new in [
        (r"\\(?:boxed|fbox)\s*(?=\{)", ""),
        (r"\\(?:no)?phantom\s*(?:\{[^{}]*\}|.)", ""),
        (r",\s*\\!\s*|\{,\}", ","),
        (r"\\\$|[$€£¥]|(?<!\\)\\[()\[\]]", " "),
        (r"(?<!\\)\\[,;:! ]|~|\\(?:quad|qquad|thinspace|displaystyle|textstyle|limits)(?![A-Za-z])", " "),
        (r"\\(?:left|right|bigl?|bigr|Bigl?|Bigr)(?![A-Za-z])\s*\.?", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac\s*([0-9A-Za-z])", r"\\frac{\1}"),
        (r"\\frac\s*(\{[^{}]*\})\s*([0-9A-Za-z])", r"\\frac\1{\2}"),
        (r"\\frac\s*(\{[^{}]*\})\s*\{", r"\\frac\1{"),
        (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"([\^_])\{([0-9A-Za-z])\}", r"\1\2"),
        (r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)(?![A-Za-z])|\\degrees?(?![A-Za-z])", " "),
        (r"\{[bvB]matrix\}", "{pmatrix}"),
        (r"\\(?:leq|leqslant)(?![A-Za-z])", r"\\le"),
        (r"\\(?:geq|geqslant)(?![A-Za-z])", r"\\ge"),
        (r"^\s*\\approx", ""),
    ]
]


def decide(gold: Answer, answer: Answer) -> bool | None:
    """Whether two answers are the same, `None` where it takes algebra to say.

    Numbers are compared as exact rationals, so 1/2 is 0.5 and 0.333 is not 1/3; 20% is both 20 and 1/5. Numerals with
    a base, ratios, times and words are compared as they are written, words and options without regard to case.
    """
    if gold.key == answer.key or (_is_words(gold) and gold.key.casefold() == answer.key.casefold()):
        return True
    values = rational(gold.text), rational(answer.text)
    if values[0] is not None and values[1] is not None:
        return not values[0].isdisjoint(values[1])
    option = re.fullmatch(r"\(?([A-Z])\)?", gold.key)
    if option and (chosen := re.fullmatch(r"\(?([A-Za-z])\)?", answer.key)):
        return option[1] == chosen[1].upper()
    for one in (gold, answer):
        if ":" in one.key or re.fullmatch(r"-?[0-9A-Z.]+_\{?\d+\}?", one.key) or _is_words(one):
            return False
    parts = _split(gold.text), _split(answer.text)
    numbers = [[rational(one) for one in part] for _, part in parts]
    if all(len(part) > 1 and None not in part for part in numbers):
        return _same_numbers(parts[0][0], parts[1][0], *numbers)  # type: ignore[arg-type]
    if {parts[0][0], parts[1][0]} == {"()", "{}"}:
        return False  # a tuple is no set
    return None


def without_names(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    r"""Both without the name of what is asked for, where one of them lacks it: x = 5 and 5, x \in [0, 1] and [0, 1].

    Of a chain such as 2 + 3 = 5 the last member is the answer, where the gold answer is no equation.
    """
    golds, answers = _members(gold), _members(answer)
    if len(golds) == 1 or len(answers) == 1:
        if len(golds) == 1:
            return gold, normal(answers[-1]) if _is_value(answers) else answer
        named = len(golds) == 2 and re.fullmatch(r"\s*(?:[A-Za-z]{1,3}|[\d.]+)(?:\([a-z\d]\))?\s*", golds[0])
        return (normal(golds[1]), answer) if named else (gold, answer)
    if len(golds) == len(answers) == 2 and normal(golds[0]).key == normal(answers[0]).key:
        return normal(golds[1]), normal(answers[1])
    return gold, answer


def _is_value(members: list[str]) -> bool:
    """Whether what stands before the last member of a chain is a name or a calculation, and not an equation's side."""
    before = " ".join(members[:-1])
    return bool(re.fullmatch(r"\s*[A-Za-z]{1,3}\s*", before)) or not (
        re.search(r"[xyz]", re.sub(r"\\[A-Za-z]+", "", before)) or normal(members[-1]).key == "0"
    )


def _members(answer: Answer) -> list[str]:
    member = re.fullmatch(r"\s*([A-Za-z])\s*\\in(?![A-Za-z])(.*)", answer.text)
    if member:
        return [member[1], member[2]]
    sides = answer.text.split("=")
    lists = len(sides) > 2 and "," in answer.text  # AB = 9, CD = 4
    return [answer.text] if lists or not all(side.strip() for side in sides) else sides


def _is_words(answer: Answer) -> bool:
    """Whether some part of the answer is a word of a language, and no name of mathematics."""
    bare = re.sub(r"\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+", " ", answer.text)
    return any(word.lower() not in FUNCTIONS for word in re.findall(r"[A-Za-z]{3,}", bare))


def _split(text: str) -> tuple[str, list[str]]:
    r"""The brackets around a list, "" for none, and its entries: those between commas that no brackets enclose."""
    text = text.replace(r"\{", "{").replace(r"\}", "}")
    around = text[:1] + text[-1:]
    if around in ("()", "[]", "(]", "[)", "{}"):
        text = text[1:-1]
    else:
        around = ""
    entries, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign in ",;" and depth == 0:
            entries.append("")
        else:
            entries[-1] += sign
        if depth < 0:  # as in (1,2) and (3,4): the brackets do not belong together
            return "", [text]
    return around, [entry.strip() for entry in entries]


def _same_numbers(
    gold: str, answer: str, golds: list[frozenset[Fraction]], answers: list[frozenset[Fraction]]
) -> bool:
    if len(golds) != len(answers):
        return False
    ordered = "()" in (gold, answer) if gold else False
    if gold != answer and {gold, answer} not in ({"", "()"}, {"", "{}"}):
        return False
    if ordered or gold in ("[]", "(]", "[)"):
        return all(not one.isdisjoint(other) for one, other in zip(golds, answers, strict=True))
    return Counter(map(max, golds)) == Counter(map(max, answers))


_DECIMAL = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)"
_WHOLE = re.compile(rf"({_DECIMAL})(?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{{?(-?\d{{1,3}})\}}?)?")
_FRACTION = re.compile(
    rf"(\d+(?:\s+|(?=\\frac)))?(?:\\frac\{{\s*(-?{_DECIMAL})\s*\}}\{{\s*({_DECIMAL})\s*\}}|({_DECIMAL})\s*/\s*({_DECIMAL}))"
)
_TRAILING_UNIT = re.compile(r"\s*(?:[A-Za-z][A-Za-z]+[A-Za-z. /]*(?:\^\d)?|[\u3400-\u9fff]+)")


def rational(text: str) -> frozenset[Fraction] | None:
    r"""The number that a text writes, exactly, `None` if it is no rational number; for 20% both 20 and 1/5.

    Read are `-1,234.5`, `\frac{3}{4}`, `3/4`, `1\frac{3}{4}`, `1 3/4`, `3 \times 10^{5}`, `four`, each with a percent
    sign, or words behind it, which are a unit.

    Args:
        text: of an `Answer`.
    """
    if text.lower() in _NUMBER_WORDS:
        return frozenset({Fraction(_NUMBER_WORDS.index(text.lower()))})
    sign = re.match(r"\s*([+-]?)\s*", text)
    assert sign is not None
    body = text[sign.end() :]
    found = _FRACTION.match(body) or _WHOLE.match(body)
    if found is None:
        return None
    rest = body[found.end() :]
    percent = re.match(r"\s*(?:\\?%|percent\b)", rest)
    rest = rest[percent.end() :] if percent else rest
    if rest.strip() and not _is_unit(rest):
        return None
    parts = [part and part.replace(",", "").strip() for part in found.groups()]
    if len(parts) == 2:
        value = Fraction(parts[0] or 0) * Fraction(10) ** int(parts[1] or 0)
    else:
        below = Fraction(parts[2] or parts[4] or 1)
        if below == 0:
            return None
        value = Fraction(parts[0] or 0) + Fraction(parts[1] or parts[3] or 0) / below
    value = -value if sign[1] == "-" else value
    return frozenset({value, value / 100}) if percent else frozenset({value})


def _is_unit(text: str) -> bool:
    if not _TRAILING_UNIT.fullmatch(text):
        return False
    return all(word.lower() not in FUNCTIONS for word in re.findall("[A-Za-z]+", text))
