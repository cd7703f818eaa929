r"""Parses the numbers of answers: decimals, fractions, percent, words, and the units after them.

Values are exact rationals. Answers have at most 1,000 characters, which bounds time and memory.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction
from typing import NamedTuple

FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "lg", "exp", "sqrt", "pi",
    "deg", "max", "min", "gcd", "lcm", "mod", "det",
})  # fmt: skip
"""Mathematical names."""

_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""".split()  # noqa: SIM905
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_SPELLED = {**{word: value for value, word in enumerate(_WORDS)}, **{word: 10 * i for i, word in enumerate(_TENS, 2)}}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_CHINESE_SCALES = {"十": 10, "百": 10**2, "千": 10**3, "万": 10**4, "亿": 10**8}

_UNITS = {
    "mm": "mm millimeter millimetre 毫米", "cm": "cm centimeter centimetre 厘米", "dm": "dm decimeter 分米",
    "m": "m meter metre 米", "km": "km kilometer kilometre 千米 公里", "inch": "in inch inche", "foot": "ft foot feet",
    "yard": "yd yard", "mile": "mi mile", "mg": "mg milligram", "g": "g gram 克", "kg": "kg kilogram 千克 公斤",
    "ton": "ton tonne 吨", "pound": "lb pound", "ounce": "oz ounce", "second": "s sec second 秒",
    "minute": "min minute 分钟", "hour": "h hr hour 小时", "day": "day 天", "week": "week 周 星期",
    "month": "month 个月",
    "year": "yr year 年", "ml": "ml milliliter millilitre 毫升", "liter": "l liter litre 升", "gallon": "gal gallon",
    "dollar": "dollar usd", "cent": "cent", "euro": "euro eur", "yuan": "yuan rmb 元",
    "jiao": "角", "rupee": "rupee",
    "degree": "degree deg", "radian": "radian rad", "am": "am", "pm": "pm", "^2": "sq square 平方", "^3": "cubic 立方",
    "mile hour": "mph", "km hour": "kph kmh",
}  # fmt: skip
_UNIT = {word: frozenset(unit.split()) for unit, words in _UNITS.items() for word in words.split()}
_CHINESE = re.compile("|".join(sorted((word for word in _UNIT if not word.isascii()), key=len, reverse=True)))
# A word after which the text before it is not the whole number.
_NO_UNIT = FUNCTIONS | {*_SPELLED, *_SCALES, *"and or to not no nor plus minus times over by than is are half".split()}  # noqa: SIM905
# A word right after a number that changes its value. "2 sevenths" always does; the others only if they do not
# describe the next noun: "5 squared" and "5 squared of", but not "5 squared units" or "6 fifth graders".
_ORDINAL = (
    r"(?:thir(?:d|teenth)|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w+teen|\w+tie|\w+red|\w+and|\w+lion)th)"
)
_FRACTION_WORD = re.compile(rf"{_ORDINAL}s|halves")
_CHANGING_WORD = re.compile(
    rf"{_ORDINAL}|squared|cubed|\w+(?:ubled|[iu]pled)|halved|negated?|negative|minus|invert(?:ed)?|inverse|reciprocal|"
    r"factorial|imaginary|repeating|repeated|recurring|raised|divided|multiplied|added|subtracted|increased|decreased|"
    r"reduced|mod(?:ulo)?|choose|root|power|base"
)
_PREPOSITIONS = frozenset("of by to from with in on".split())  # noqa: SIM905


class Number(NamedTuple):
    """A number as written.

    Attributes:
        value: before division by 100, if it is a percentage.
        percent: whether it has a percent sign.
        unit: the known parts of its unit, with powers: km and hour for km/h, cm and ^2 for cm^2.
    """

    value: Fraction
    percent: bool = False
    unit: frozenset[str] = frozenset()


def same(gold: Number, answer: Number) -> bool:
    """Returns whether two numbers are equal.

    A percentage equals its hundredth. It also equals the number before an omitted percent sign, if that is at least 1:
    0.2 means 20% rather than 0.2%. A unit or a part of it may be missing, but km differ from cm. A rational angle
    without a unit is in degrees.
    """
    if clash(gold.unit, answer.unit) or ("radian" in gold.unit) != ("radian" in answer.unit):
        return False
    if gold.percent == answer.percent:
        return gold.value == answer.value
    percent, plain = (gold, answer) if gold.percent else (answer, gold)
    return percent.value == 100 * plain.value or (percent.value == plain.value and abs(plain.value) >= 1)


def clash(first: frozenset[str], second: frozenset[str]) -> bool:
    """Returns whether two units differ, where a missing part is no difference."""
    return not (first <= second or second <= first)


_DECIMAL = r"(?:(?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)"
_REPEATING = re.compile(r"(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{\s*(\d+)\s*\}|\((\d+)\))")
_WHOLE = re.compile(
    rf"({_DECIMAL})(?:[eE]([+-]?\d{{1,3}})(?!\d)|\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{{?([+-]?\d{{1,3}})\}}?)?"
)
_FRACTION = re.compile(
    rf"(\d+(?:\s+|(?=\\frac)))?(?:\\frac\{{\s*(-?{_DECIMAL})\s*\}}\{{\s*({_DECIMAL})\s*\}}|({_DECIMAL})\s*/\s*({_DECIMAL}))"
)
_PERCENT = re.compile(r"\s*(?:\\?%|per\s?cent(?:age)?\b|pct\b)")
_SCALE = re.compile(rf"[\s-]*({'|'.join(_SCALES)})s?\b", re.IGNORECASE)
_CHINESE_SCALE = re.compile(rf"\s*([{''.join(_CHINESE_SCALES)}]+)")


@functools.lru_cache(maxsize=4096)
def number(text: str) -> Number | None:
    r"""Returns the exact number that a text denotes, or `None` if it is not a rational number.

    Parses `-1,234.5`, `\frac{3}{4}`, `3/4`, `1\frac{3}{4}`, `1 3/4`, `3 \times 10^{5}`, `3e5`, `0.1\overline{6}`,
    `twenty-one`, `5 million`, each with an optional percent sign and unit. Calculations are left to the algebra.

    Args:
        text: of an `Answer`.
    """
    sign = re.match(r"\s*([+-]?)\s*", text)
    assert sign is not None
    body = text[sign.end() :]
    read = _read(body)
    if read is None:
        return None
    value, rest = read
    percent = _PERCENT.match(rest)
    unit = unit_of(rest[percent.end() :] if percent else rest)
    return None if unit is None else Number(-value if sign[1] == "-" else value, percent is not None, unit)


def _read(body: str) -> tuple[Fraction, str] | None:
    """Returns the number at the start of a text, and the text after it."""
    match: re.Match[str] | None
    if match := _REPEATING.match(body):
        whole, digits, repeated = match[1], match[2], match[3] or match[4]
        unit = Fraction(1, 10 ** len(digits))
        value = Fraction(int(whole or 0)) + int(digits or 0) * unit + int(repeated) * unit / (10 ** len(repeated) - 1)
    elif match := _FRACTION.match(body):
        parts = [part and part.replace(",", "").strip() for part in match.groups()]
        denominator = Fraction(parts[2] or parts[4] or 1)
        if denominator == 0:
            return None
        value = Fraction(parts[0] or 0) + Fraction(parts[1] or parts[3] or 0) / denominator
    elif match := _WHOLE.match(body):
        value = Fraction(match[1].replace(",", "")) * Fraction(10) ** int(match[2] or match[3] or 0)
    else:
        return _spelled(body)
    rest = body[match.end() :]
    while scale := _SCALE.match(rest):
        value, rest = value * _SCALES[scale[1].lower()], rest[scale.end() :]
    scale = _CHINESE_SCALE.match(rest)
    if scale and not _CHINESE.match(rest.strip()):
        value *= math.prod(_CHINESE_SCALES[sign] for sign in scale[1])
        rest = rest[scale.end() :]
    return value, rest


def _spelled(body: str) -> tuple[Fraction, str] | None:
    """Returns the number in words at the start of a text, such as "one hundred and five", and the text after it."""
    total = current = end = 0
    largest: float = float("inf")
    for word in re.finditer(r"[A-Za-z]+", body):
        gap, name = body[end : word.start()], word.group().lower()
        if (end and not re.fullmatch(r"\s+|-|\s+and\s+", gap)) or (not end and gap):
            break
        if name in _SPELLED:
            if current % 100 and not (current % 10 == 0 and current % 100 >= 20 and 0 < _SPELLED[name] < 10):
                return None  # as in "five six"
            current += _SPELLED[name]
        elif name in _SCALES and end and _SCALES[name] < largest:
            if name in ("hundred", "dozen"):
                current *= _SCALES[name]
            else:
                total, current, largest = total + current * _SCALES[name], 0, _SCALES[name]
        elif name == "and" and end:
            continue
        else:
            break
        end = word.end()
    return (Fraction(total + current), body[end:]) if end else None


def unit_of(text: str) -> frozenset[str] | None:
    """Returns the known parts of the unit after a number, empty for an empty text; `None` if it is not a unit."""
    if not text.strip():
        return frozenset()
    if re.fullmatch(r"\s*[\u3400-\u9fff]+", text):
        odd = re.search("[或到至和与加减乘除分点半的方]", _CHINESE.sub("", text)) or _CHINESE_SCALE.match(text)
        return None if odd and not _CHINESE.match(text.strip()) else _known(text)
    if not re.fullmatch(r"\s*[A-Za-z][A-Za-z. /-]*(?:\^\s*\{?\d\}?)?\.?\s*", text):
        return None
    words = re.findall(r"[a-z]+", re.sub(r"\b([ap])\.\s?m\b", r"\1m", text.lower()))
    if _is_no_unit(words) or any(len(word) == 1 and word not in {*_UNIT, "a"} for word in words):
        return None
    if _singular(words[0]) in _UNIT:
        return _known(text)
    # Two letters, or letters right after a digit, are a product of variables.
    is_word = text[:1].isspace() and len(words[0]) > 2 and re.search("[aeiou]", words[0])
    return _known(text) if is_word else None


def unit_in_group(words: str) -> frozenset[str] | None:
    r"""Does the same as `unit_of` for the content of `\text{...}`, where words of one or two letters count too."""
    if not re.fullmatch(r"[A-Za-z. /^{}\d\u3400-\u9fff-]*", words) or re.search(r"(?<!\^)(?<!\^\{)\d", words):
        return None
    latin = re.findall(r"[a-z]+", words.lower())
    if not latin:
        return unit_of(words)
    is_letter = len(words.strip()) == 1 and latin[0] not in _UNIT  # a variable, as i or e
    return None if is_letter or _is_no_unit(latin) else _known(words)


def _is_no_unit(words: list[str]) -> bool:
    """Whether the words after a number continue it or change its value."""
    if any(word in _NO_UNIT for word in words) or _FRACTION_WORD.fullmatch(words[0]):
        return True
    describes = len(words) > 1 and words[1] not in _PREPOSITIONS
    return not describes and _CHANGING_WORD.fullmatch(words[0]) is not None


def _known(text: str) -> frozenset[str]:
    text = re.sub(r"\b([ap])\.\s?m\b", r"\1m", text.lower())
    units = [_UNIT.get(_singular(word), frozenset()) for word in re.findall(r"[a-z]+", text)]
    units += [_UNIT[word] for word in _CHINESE.findall(text)]
    units += [frozenset({f"^{power}"}) for power in re.findall(r"\^\s*\{?(\d)", text)]
    return frozenset().union(*units)


def _singular(word: str) -> str:
    return word if word in _UNIT or not word.endswith("s") else word[:-1]
