r"""Normal forms of answers, and their equality where it needs no algebra (paper C3, Appendix E).

Answers have at most 1,000 characters, which bounds time and memory.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate
from operator import itemgetter, methodcaller
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
    "·": r"\cdot", "÷": "/", "√": r"\sqrt", "°": r"^\circ", "≈": r"\approx", "∈": r"\in", "∅": r"\emptyset",
    "≠": r"\ne", "∨": r"\lor", "∧": r"\land",
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

    A text in which every backslash is doubled was escaped once too often.

    Args:
        text: of any length; the time is linear in it.
    """
    text = text if text.isascii() else text.translate(_SIGNS)
    return text if _SINGLE.search(text) else text.replace("\\\\", "\\")


def normal(answer: str) -> Answer:
    r"""Returns an answer without formula delimiters, layout, currency, degrees, units and a final full stop.

    `\dfrac12` becomes `\frac{1}{2}`, `90^\circ` 90, `\text{Evelyn}` Evelyn, `15\mbox{ cm}^2` 15, `10,\!080` 10,080.

    Args:
        answer: as written, at most `MAX_ANSWER` characters.
    """
    if re.fullmatch(r"-?\d+(?:,\d+)*(?:\.\d+)?", answer, re.ASCII):
        return Answer(answer, answer)
    text = unicodedata.normalize("NFKC", flat(answer))
    if _ANGLE.search(text):
        text = _DEGREES.sub(r"\\frac{\1\\pi}{180}", text)
    units = [unit for pattern, unit in _MARKS if pattern.search(text)]
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    if residue := _RESIDUE.search(text):
        text = text[: residue.start()].replace(r"\equiv", "=")
        units.append(frozenset({f"mod {residue[1] or residue[2] or residue[3]}"}))
    text = _as_set(text) or _UNITS.sub(lambda unit: _without_unit(text, unit, units), text)
    text = re.sub(r"\s+", " ", text).strip().strip("*`")
    text = _LIST.sub(", ", _GROUPS.sub(lambda group: group.group().replace(" ", ""), text))
    text = _GLOSS.sub(lambda gloss: gloss[1] if number(gloss[1]) == number(gloss[2]) else gloss.group(), text)
    text = re.sub(r"(?:, ?)+,", ",", text)
    if len({*re.findall("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text))} - {*"cCed"}) == 1 and re.search("[t-z]", text):
        text = _CONSTANT.sub(r"\1C", text)
    text = re.sub(r"[\s.,;:。]+$", "", text)
    while text.startswith("{") and text.endswith("}") and _closes_at_end(text):
        text = text[1:-1].strip()
    text = r"\emptyset" if _NO_SOLUTION.fullmatch(text) else text
    key = re.sub(r"\s", "", text)
    if not key:  # nothing is left, as of \phantom{09}
        text = answer.strip().strip("$")
        key = re.sub(r"\s", "", text)
    return Answer(text, key, frozenset().union(*units))


def _without_unit(text: str, unit: re.Match[str], units: list[frozenset[str]]) -> str:
    """Replaces a group of words: a unit after a number by a blank, "and" by a comma; other words stay."""
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


def _as_set(text: str) -> str | None:
    r"""Returns x < 2 or x > 3 as (-\infty,2) \cup (3,\infty), `None` for a text that is no such statement."""
    text = re.sub(r"\\[a-z]+\s*\{\s*(or|and)\s*\}|\\l(or|and)(?![A-Za-z])", r" \1\2 ", text)
    if not _ORDER.search(text) or not re.search(r" (?:or|and) ", text):
        return None
    sets, names, low, high = [], set(), r"(-\infty", r"\infty)"
    for piece in re.split(r",? or ", text):
        ends: dict[bool, str] = {}
        for relation in re.split(r",? and ", piece):
            parts = [part.strip() for part in _ORDER.split(relation)]
            for left, sign, right in zip(parts[:-1:2], parts[1::2], parts[2::2], strict=True):
                if re.fullmatch("[A-Za-z]", right):
                    left, sign, right = right, _TURNED[sign], left
                names.add(left)
                is_low, closed = sign in (">", r"\ge"), sign.startswith("\\")
                if is_low in ends:
                    return None
                ends[is_low] = ("[" if closed else "(") + right if is_low else right + ("]" if closed else ")")
        sets.append(f"{ends.get(True, low)},{ends.get(False, high)}")
    return r" \cup ".join(sets) if re.fullmatch("[A-Za-z]", "".join(names)) else None


def _closes_at_end(text: str) -> bool:
    depths = accumulate((sign == "{") - (sign == "}") for sign in text)
    return next((index for index, depth in enumerate(depths) if depth == 0), None) == len(text) - 1


# What an answer calls a quantity: x, f(x), S_{ABC}, |AB|, A:B, \frac{AB}{CD}, (p,q).
_PLAIN_NAME = (
    r"(?>\s*(?:m?\\(?:angle|triangle)\s*)?(?:[A-Za-z]{1,3}(?![A-Za-z])|[A-Z]+|\\[A-Za-z]+|\\(?:overline|bar)\s*\{[A-Za-z]+\})"
    r"(?:_(?:\w|\{\w+\}))?'*\s*(?:\([^()=]{1,9}\)\s*)?)"
)
_LENGTH = r"\s*[A-Z]+(?:_(?:\w|\{\w+\}))?\s*"
_NAME = re.compile(
    rf"{_PLAIN_NAME}|\s*\|{_LENGTH}\|\s*|{_LENGTH}[:/]{_LENGTH}|\s*\\frac\{{{_LENGTH}\}}\{{{_LENGTH}\}}\s*"
    rf"|\s*\({_PLAIN_NAME}(?:,{_PLAIN_NAME})+\)\s*"
)
# Digits in groups of three, as in 10 080, and lists in words, as in 1 and 2.
_GROUPS = re.compile(r"(?<![\d.,/])\d{1,3}(?: \d{3})+(?! ?[\d/])")
_LIST = re.compile(rf"(?<=[\d)}}])(?:,| ?,)? (?:and|or) (?=[\d(\\-]|{_PLAIN_NAME}=)")
_GLOSS = re.compile(r"(?<!\d)(\d[\d,]{0,40}+) ?\( ?([A-Za-z -]+)\)")
_CONSTANT = re.compile(r"(^|\+) ?c(?= ?(?:\+|$))")
_SINGLE = re.compile(r"(?<!\\)\\(?:\\\\)*(?!\\)")
_ORDER = re.compile(r"(\\[lg]e(?![A-Za-z])|[<>])")
_TURNED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_RESIDUE = re.compile(r"(?:\\pmod\s*(?:\{\s*(\w+)\s*\}|(\w+))|\(\s*\\?b?mod\s*\{?(\w+)\}?\s*\))[\s.]*+\Z")
_NO_SOLUTION = re.compile(r"(?:there (?:is|are) )?no (?:real )?solutions?", re.IGNORECASE)
_ANGLE = re.compile(r"(?<!arc)(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_DEGREES = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*+(?:\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?)(?![A-Za-z])")
_SIDE = r"\s*[^\s\[\](),;](?:[^\[\](),;]*[^\s\[\](),;])?\s*"
_MARKS = [
    (re.compile(r"\\circ(?![A-Za-z])|\\degrees?(?![A-Za-z])"), frozenset({"degree"})),
    (re.compile(r"\\\$"), frozenset({"dollar"})),
    (re.compile("€"), frozenset({"euro"})),
    (re.compile("£"), frozenset({"pound"})),
    (re.compile("¥"), frozenset({"yuan"})),
]
_UNITS = re.compile(TEXT_GROUP + r"(\s*\^\s*(?:\{\d\}|\d))?")
_REWRITES = [
    (re.compile(pattern), methodcaller("expand", new))
    for pattern, new in [
        (r"\\(?:boxed|fbox)\s*(?=\{)|\\(?:text)?color\s*\{[^{}]*\}", ""),
        (r"\\(?:vec|overrightarrow|boldsymbol|bm)\s*(?=\{)", r"\\mathbf"),
        (r"\\hat\s*\{\s*\\?([ijk])(?:math)?\s*\}|\\math(?:bf|it)\s*\{\s*\\?([A-Za-z])(?:math)?\s*\}", r" \1\2 "),
        (r"\\mathrm\s*\{d\}\s*(?=[A-Za-z])", "d"),
        (
            r"(?:\\(?:operatorname\*?|text|mathrm)\s*\{\s*|(?<![A-Za-z\\]))(gcd|lcm|max|min|sin|cos|tan|log|ln)\s*\}?(?=\s*\()",
            r"\\\1",
        ),
        (r"\\(?:no)?phantom\s*(?:\{[^{}]*\}|.)", ""),
        (r",\s*\\!\s*|\{,\}", ","),
        (r"\\\$|[$€£¥]|(?<!\\)\\[()\[\]]", " "),
        (r"(?<!\\)\\[,;:! ]|~|\\(?:quad|qquad|thinspace|displaystyle|textstyle|limits)(?![A-Za-z])", " "),
        (r"\\(?:left|right|bigl?|bigr|Bigl?|Bigr)(?![A-Za-z])\s*\.?", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac\s*([0-9A-Za-z])", r"\\frac{\1}"),
        (r"\\frac\s*(\{[^{}]*\})\s*([0-9A-Za-z])", r"\\frac\1{\2}"),
        (r"\\frac\s*(\{[^{}]*\})\s*\{", r"\\frac\1{"),
        (r"(?<![A-Za-z\\])sqrt(?![A-Za-z])", r"\\sqrt"),
        (r"\\sqrt\s*\(((?:[^()]|\([^()]*+\))*+)\)", r"\\sqrt{\1}"),
        (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"([\^_])\{([0-9A-Za-z])\}", r"\1\2"),
        (r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)(?![A-Za-z])|\\degrees?(?![A-Za-z])", " "),
        (r"\\lg(?![A-Za-z])", r"\\log_{10} "),
        (r"(\\int\s*_(?:\w|\{[^{}]*\})\^)(\w)", r"\1{\2}"),
        (r"\\begin\s*\{array\}\s*\{[^{}]*\}((?:(?!\\\\|\\end|&).)*)\\end\s*\{array\}", r"\1"),
        (r"[(\[]?\s*\\begin\s*\{array\}\s*(?:\{[^{}]*\})?", r"\\begin{pmatrix}"),
        (r"\\end\s*\{array\}(?:\s*[)\]])?", r"\\end{pmatrix}"),
        (r"\{[bvB]matrix\}", "{pmatrix}"),
        (rf"\]({_SIDE}[,;]{_SIDE}[\[\]])", r"(\1"),
        (rf"([(\[]{_SIDE}[,;]{_SIDE})\[", r"\1)"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
        (r"\\mod(?![A-Za-z])", r"\\pmod"),
        (r"\\neq(?![A-Za-z])|!\s*=", r"\\ne "),
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
    values = _number(gold, answer), _number(answer, gold)
    if values[0] is not None and values[1] is not None:
        return same(values[0], values[1])
    alike = gold.key == answer.key or (_is_words(gold) and gold.key.casefold() == answer.key.casefold())
    gaps = len(_GAP.findall(gold.text)), len(_GAP.findall(answer.text))  # 1 1/2 is not 11/2
    if alike and gaps[0] == gaps[1] and values == (None, None):  # a number is not a text: 1,125 is not 1, 125
        return True
    ratios = _RATIO.fullmatch(gold.key), _RATIO.fullmatch(answer.key)
    if ratios[0] and ratios[1]:  # 1:2 and 1/2, but not 3:1 and 3
        return [part for part in ratios[0].groups() if part] == [part for part in ratios[1].groups() if part]
    option, chosen = _LETTER.fullmatch(gold.key), _LETTER.fullmatch(answer.key)
    if option and chosen and option[1].isupper():
        return option[1] == chosen[1].upper()
    times = _TIME.fullmatch(gold.key.lower()), _TIME.fullmatch(answer.key.lower())
    if times[0] and times[1] and (times[0][4] or times[1][4]):  # one half of the day may be missing
        halves = {times[0][4], times[1][4]} - {None}
        return len(halves) == 1 and _clock(times[0]) == _clock(times[1])
    if _LABEL.fullmatch(gold.key) and _LABEL.fullmatch(answer.key):
        return False
    for side in (gold, answer):
        if ":" in side.key or re.fullmatch(r"-?[0-9A-Z.]+_\{?\d+\}?", side.key) or _is_words(side):
            return False
    (gold_brackets, gold_entries), (brackets, entries) = (
        ("", [side.text]) if value else _split(side.text) for side, value in zip((gold, answer), values, strict=True)
    )
    golds, answers = ([value for entry in side if (value := number(entry))] for side in (gold_entries, entries))
    if len(golds) == len(gold_entries) and len(answers) == len(entries) and max(len(golds), len(answers)) > 1:
        return _same_numbers(gold_brackets, brackets, golds, answers)
    # 1 2 is neither 12 nor 2, and a tuple is not a set.
    if _BREAK.search(gold.text) or _BREAK.search(answer.text) or {gold_brackets, brackets} == {"()", "{}"}:
        return False
    return None


_GAP = re.compile(r"\d \d")
_BREAK = re.compile(r"(?<![_^])\d \d")
_RATIO = re.compile(r"(\d+)[:/](\d+)|\\frac\{(\d+)\}\{(\d+)\}")
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?(?:([ap])\.?m\.?)?")
# Capitals in a row are a name, a word, or matrices: AB is not BA.
_LABEL = re.compile(r"(?:[A-Z](?:_(?:\w|\{\w+\}))?(?:\^(?:\{-1\}|[T\d]))?'*){2,}")


def _clock(time: re.Match[str]) -> list[int]:
    return [int(part or 0) for part in time.group(1, 2, 3)]


def _number(answer: Answer, other: Answer | None = None) -> Number | None:
    """Returns the number that an answer is, 2,74 next to 2.74 included."""
    value = number(answer.text)
    if value is None and other and re.fullmatch(r"-?\d*\.\d+", other.text) and re.fullmatch(r"-?\d+,\d+", answer.text):
        value = number(answer.text.replace(",", "."))
    return value and value._replace(unit=value.unit | answer.unit)


def without_options(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    """Returns what is to be compared if an answer is an option with its value: (C) 12 equals C and 12."""
    golds, answers = _OPTION.fullmatch(gold.text), _OPTION.fullmatch(answer.text)
    if golds and answers:
        same_letter = golds[1] == answers[1]
        return (_part(gold, golds[2]), _part(answer, answers[2])) if same_letter else (gold, answer)
    if golds:
        return _part(gold, golds[1 if _LETTER.fullmatch(answer.key) else 2]), answer
    if answers:
        return gold, _part(answer, answers[1 if _LETTER.fullmatch(gold.key) else 2])
    return gold, answer


_LETTER = re.compile(r"\(?([A-Za-z])\)?")
_OPTION = re.compile(r"\(?([A-J])[).:] (.+)")


def without_parameters(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    r"""Names the integer of a family n in both answers, if one says that it is one: k\pi, k \in \mathbb{Z} as n\pi."""
    clauses = _PARAMETER.search(gold.text), _PARAMETER.search(answer.text)
    if not any(clause and clause.start() for clause in clauses):
        return gold, answer
    return _with_n(gold, clauses[0]), _with_n(answer, clauses[1])


def _with_n(answer: Answer, clause: re.Match[str] | None) -> Answer:
    text = answer.text[: clause.start()] if clause else answer.text
    names = {*re.findall("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text))}
    ours = {clause[1] or clause[2]} if clause else names & {*"jklmn"}
    if len(ours) != 1 or "n" in names - ours:
        return answer
    return _part(answer, re.sub(rf"(\\[A-Za-z]+)|{min(ours)}", lambda found: found[1] or "n", text))


_PARAMETER = re.compile(
    r"[,;]? ?(?:(?:where|for|with) )?(?:any |all |some )?(?:integers? )?"
    r"(?:\(?([A-Za-z]) ?\\in ?(?:\\mathbb ?\{? ?Z ?\}?|Z)\)?|([A-Za-z]) is an(?:y| arbitrary)? integer)\Z"
)


def without_names(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    r"""Removes the name of a quantity where only one answer has it: x = 5 and 5, x \in [0, 1] and [0, 1].

    The last member of a chain such as 2 + 3 = 5 is the answer if the gold answer is not an equation and no two
    members contradict each other. Several names count in their order, AB = 4, CD = 5 as (4, 5); one name twice makes
    a list.
    """
    lists = _assigned(gold.text), _assigned(answer.text)
    if lists[0] and lists[1]:
        names = [[sorted(name for name, _ in group) for group in side] for side in lists]
        if names[0] == names[1]:
            by_name = [[sorted(group, key=itemgetter(0)) for group in side] for side in lists]
            return _part(gold, _listed(by_name[0])), _part(answer, _listed(by_name[1]))
    elif lists[0] and _SEVERAL.fullmatch(answer.text):
        return _part(gold, _listed(lists[0])), answer
    elif lists[1] and _SEVERAL.fullmatch(gold.text):
        return gold, _part(answer, _listed(lists[1]))
    golds, answers = _members(gold), _members(answer)
    if len(golds) == 1 or len(answers) == 1:
        if len(golds) == 1:
            return gold, _part(answer, answers[-1]) if _is_value(answers, answer.unit) else answer
        return (_part(gold, golds[-1]) if _NAME.fullmatch(golds[-2]) else gold), answer
    if len(golds) == len(answers) == 2 and normal(golds[0]).key == normal(answers[0]).key:
        return _part(gold, golds[1]), _part(answer, answers[1])
    return gold, answer


_SEVERAL = re.compile(r"(?!.*=).*(?:[,;]|\\pm).*")


def _assigned(text: str) -> list[list[tuple[str, str]]]:
    """Returns the names and values of x = 2, y = 3 in groups between semicolons; nothing for other texts."""
    groups = []
    for part in _entries(text, ";") if "=" in text else []:
        group: list[tuple[str, str]] = []
        for entry in _entries(part, ","):
            name, equals, value = entry.rpartition("=")
            if not (_NAME.fullmatch(name) if equals else group):
                return []
            group.append((re.sub(r"\s|(?<=\w)\([^()]*\)\s*$", "", name) or group[-1][0], value))
        groups.append(group)
    return groups if sum(map(len, groups)) > 1 else []


def _listed(groups: list[list[tuple[str, str]]]) -> str:
    """Returns values as (4, 5) if each has a name of its own, as 4, 5 if one has several."""
    lists = [", ".join(value for _, value in group) for group in groups]
    alone = [len({name.partition("_")[0] for name, _ in group}) == len(group) > 1 for group in groups]
    return ", ".join(f"({values})" if own else values for values, own in zip(lists, alone, strict=True))


def _part(answer: Answer, text: str) -> Answer:
    return normal(text)._replace(unit=answer.unit)


def _is_value(members: list[str], units: frozenset[str]) -> bool:
    """Whether the last member of a chain is the value of a name or calculation, not one side of an equation."""
    if not units and any(_contradict(member, members[-1]) for member in members[:-1]):
        return False
    is_zero = normal(members[-1]).key == "0"
    return all(
        _NAME.fullmatch(member) or not (is_zero or re.search(r"[xyz]", re.sub(r"\\[A-Za-z]+", "", member)))
        for member in members[:-1]
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
    inner = _entries(text[1:-1], ",;") if around in ("()", "[]", "(]", "[)", "{}") else []
    return (around, inner) if inner else ("", _entries(text, ",;") or [text])


def _entries(text: str, signs: str) -> list[str]:
    """Returns the parts of a text between signs outside of brackets, none if the brackets do not belong together."""
    if re.search(r"[,;]\s", text):  # then a comma within digits groups them, as in 1,000, 2,000
        text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    entries, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0:  # as in the middle of (1,2) and (3,4)
            return []
        if sign in signs and depth == 0:
            entries.append("")
        else:
            entries[-1] += sign
    return [entry.strip() for entry in entries]


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
