r"""Normal forms of answers, and their equality where it needs no algebra (paper C3, Appendix E).

Answers have at most 1,000 characters, which bounds time and memory.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate
from typing import NamedTuple

from hf_credit.verifiers.numerals import FUNCTIONS, Number, clash, number, same, unit_in_group


class Answer(NamedTuple):
    """An answer in a comparable form.

    Attributes:
        text: without formula delimiters, units and layout spaces; blanks that may matter stay.
        key: `text` without blanks.
        unit: the known parts of the units that were removed.
    """

    text: str
    key: str
    unit: frozenset[str] = frozenset()


TEXT_GROUP = r"\\(?:text|mbox|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|texttt)\s*\{([^{}]*)\}"
"""A pattern for words in a formula."""

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
    """Replaces fullwidth characters by plain ones and mathematical symbols by commands, and drops invisible ones.

    Args:
        text: of any length; the time is linear in it.
    """
    return text if text.isascii() else text.translate(_SIGNS)


def normal(answer: str) -> Answer:
    r"""Returns an answer without formula delimiters, layout, currency, degrees, units and a final full stop.

    `\dfrac12` becomes `\frac{1}{2}`, `90^\circ` 90, `\text{Evelyn}` Evelyn, `15\mbox{ cm}^2` 15, `10,\!080` 10,080.

    Args:
        answer: as written, at most `MAX_ANSWER` characters.
    """
    text = unicodedata.normalize("NFKC", flat(answer))
    units = [unit for pattern, unit in _MARKS if pattern.search(text)]
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    text = _UNITS.sub(lambda unit: _without_unit(text, unit, units), text)
    text = re.sub(r"\s+", " ", text).strip().strip("*`")
    text = _LIST.sub(",", _GROUPS.sub(lambda group: group.group().replace(" ", ""), text))
    text = re.sub(r"[\s.,;:。]+$", "", text)
    while text.startswith("{") and text.endswith("}") and _closes_at_end(text):
        text = text[1:-1].strip()
    key = re.sub(r"\s", "", text)
    if not key:  # nothing is left, as of \phantom{09}
        text = answer.strip().strip("$")
        key = re.sub(r"\s", "", text)
    return Answer(text, key, frozenset().union(*units))


def _without_unit(text: str, unit: re.Match[str], units: list[frozenset[str]]) -> str:
    """Replaces a group of words: a unit behind a number by a blank, "and" by a comma; other words stay."""
    words = unit.group(1)
    if re.fullmatch(r"[\s,;]*(?:and|or)?[\s,;]*", words):
        return "," if words.strip() else " "
    power = unit.group(2) or ""
    parts = unit_in_group(words + power)
    is_time = re.search(r"(?<![A-Za-z])[ap]\.?m(?![A-Za-z])", words)
    if parts is None or is_time or not re.search(r"\d|\\pi", text[: unit.start()]):
        return f" {words}{power} "
    units.append(parts)
    return " "


def _closes_at_end(text: str) -> bool:
    depths = accumulate((sign == "{") - (sign == "}") for sign in text)
    return next((index for index, depth in enumerate(depths) if depth == 0), None) == len(text) - 1


# Digits in groups of three, as in 10 080, and lists in words, as in 1 and 2.
_GROUPS = re.compile(r"(?<![\d.,/])\d{1,3}(?: \d{3})+(?! ?[\d/])")
_LIST = re.compile(r"(?<=[\d)}])(?:,| ?,)? (?:and|or) (?=[\d(\\-])")
_MARKS = [
    (re.compile(r"\\circ(?![A-Za-z])|\\degrees?(?![A-Za-z])"), frozenset({"degree"})),
    (re.compile(r"\\\$"), frozenset({"dollar"})),
    (re.compile("€"), frozenset({"euro"})),
    (re.compile("£"), frozenset({"pound"})),
    (re.compile("¥"), frozenset({"yuan"})),
]
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
        (r"\\(?:leq|leqslant)(?![A-Za-z])|<\s*=", r"\\le "),
        (r"\\(?:geq|geqslant)(?![A-Za-z])|>\s*=", r"\\ge "),
        (r"(?<![A-Za-z\\])oo(?![A-Za-z])", r"\\infty"),
        (r"^\s*\\approx", ""),
    ]
]


def decide(gold: Answer, answer: Answer) -> bool | None:
    """Returns whether two answers are equal, or `None` if only algebra can decide.

    Numbers are compared as exact rationals: 1/2 equals 0.5, and 0.333 does not equal 1/3. 20% equals both 20 and 1/5.
    Numerals with a base, ratios, times and words are compared as written; words and options ignore case. A unit is
    optional, but two known units must be the same.
    """
    if clash(gold.unit, answer.unit):
        return False
    values = _number(gold), _number(answer)
    if values[0] is not None and values[1] is not None:
        return same(values[0], values[1])
    alike = gold.key == answer.key or (_is_words(gold) and gold.key.casefold() == answer.key.casefold())
    if alike and len(_GAP.findall(gold.text)) == len(_GAP.findall(answer.text)):  # 1 1/2 is not 11/2
        return True
    option = re.fullmatch(r"\(?([A-Z])\)?", gold.key)
    if option and (chosen := re.fullmatch(r"\(?([A-Za-z])\)?", answer.key)):
        return option[1] == chosen[1].upper()
    for side in (gold, answer):
        if ":" in side.key or re.fullmatch(r"-?[0-9A-Z.]+_\{?\d+\}?", side.key) or _is_words(side):
            return False
    (gold_brackets, gold_entries), (brackets, entries) = _split(gold.text), _split(answer.text)
    golds, answers = ([value for entry in side if (value := number(entry))] for side in (gold_entries, entries))
    if len(golds) == len(gold_entries) and len(answers) == len(entries) and max(len(golds), len(answers)) > 1:
        return _same_numbers(gold_brackets, brackets, golds, answers)
    # 1 2 is neither 12 nor 2, and a tuple is not a set.
    if _GAP.search(gold.text) or _GAP.search(answer.text) or {gold_brackets, brackets} == {"()", "{}"}:
        return False
    return None


_GAP = re.compile(r"\d \d")


def _number(answer: Answer) -> Number | None:
    value = number(answer.text)
    return value and value._replace(unit=value.unit | answer.unit)


def without_names(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    r"""Removes the name of the unknown where only one answer has it: x = 5 and 5, x \in [0, 1] and [0, 1].

    The last member of a chain such as 2 + 3 = 5 is the answer if the gold answer is not an equation and no two
    members contradict each other.
    """
    golds, answers = _members(gold), _members(answer)
    if len(golds) == 1 or len(answers) == 1:
        if len(golds) == 1:
            return gold, _part(answer, answers[-1]) if _is_value(answers, answer.unit) else answer
        named = len(golds) == 2 and re.fullmatch(r"\s*(?:[A-Za-z]{1,3}|[\d.]+)(?:\([a-z\d]\))?\s*", golds[0])
        return (_part(gold, golds[1]), answer) if named else (gold, answer)
    if len(golds) == len(answers) == 2 and normal(golds[0]).key == normal(answers[0]).key:
        return _part(gold, golds[1]), _part(answer, answers[1])
    return gold, answer


def _part(answer: Answer, text: str) -> Answer:
    return normal(text)._replace(unit=answer.unit)


def _is_value(members: list[str], units: frozenset[str]) -> bool:
    """Whether the last member of a chain is the value of a name or calculation, not one side of an equation."""
    before = " ".join(members[:-1])
    if not units and any(_contradict(member, members[-1]) for member in members[:-1]):
        return False
    return bool(re.fullmatch(r"\s*[A-Za-z]{1,3}\s*", before)) or not (
        re.search(r"[xyz]", re.sub(r"\\[A-Za-z]+", "", before)) or normal(members[-1]).key == "0"
    )


def _contradict(first: str, second: str) -> bool:
    """Whether two members of a chain are numbers of one unit that differ by more than rounding, as in 5 = 6 = 5."""
    texts = normal(first), normal(second)
    values = _number(texts[0]), _number(texts[1])
    if values[0] is None or values[1] is None or clash(values[0].unit, values[1].unit) or same(values[0], values[1]):
        return False
    places = [len(text.key.partition(".")[2]) for text in texts]
    return (
        round(values[0].value, places[1]) != values[1].value and round(values[1].value, places[0]) != values[0].value
    )


def _members(answer: Answer) -> list[str]:
    member = re.fullmatch(r"\s*([A-Za-z])\s*\\in(?![A-Za-z])(.*)", answer.text)
    if member:
        return [member[1], member[2]]
    if re.search(r"[<>!]\s*=|\\not(?![A-Za-z])|=\s*[<>]", answer.text):
        return [answer.text]  # n >= 5 has no value
    sides = answer.text.split("=")
    lists = len(sides) > 2 and "," in answer.text  # AB = 9, CD = 4
    return [answer.text] if lists or not all(side.strip() for side in sides) else sides


def _is_words(answer: Answer) -> bool:
    """Whether the answer contains a word that is not a mathematical name."""
    bare = re.sub(r"\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+", " ", answer.text)
    return any(word.lower() not in FUNCTIONS for word in re.findall(r"[A-Za-z]{3,}", bare))


def _split(text: str) -> tuple[str, list[str]]:
    r"""Returns the brackets around a list, "" for none, and its entries, split at commas outside of brackets."""
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


def _same_numbers(gold: str, answer: str, golds: list[Number], answers: list[Number]) -> bool:
    if len(golds) != len(answers):
        return False
    ordered = "()" in (gold, answer) if gold else False
    if gold != answer and {gold, answer} not in ({"", "()"}, {"", "{}"}):
        return False
    if ordered or gold in ("[]", "(]", "[)"):
        return all(map(same, golds, answers))
    left = list(answers)
    for value in golds:
        match = next((candidate for candidate in left if same(value, candidate)), None)
        if match is None:
            return False
        left.remove(match)
    return True
