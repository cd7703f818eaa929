r"""The numbers that answers write: decimals, fractions, arithmetic, percent, words, and the units behind them.

Everything is an exact rational. Answers have a thousand characters at most, so nothing here takes long or much.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from typing import NamedTuple

FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "lg", "exp", "sqrt", "pi",
    "deg", "max", "min", "gcd", "lcm", "mod", "det",
})  # fmt: skip
"""Words that are mathematics."""

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
# A word that says that what stands before it is not the whole number.
_NO_UNIT = FUNCTIONS | {*_SPELLED, *_SCALES, *"and or to not no nor plus minus times over by than is are half".split()}  # noqa: SIM905
# A word right behind a number that makes another number of it. "2 sevenths" always does; the others only where they
# describe no noun that follows: "5 squared" and "5 squared of", not "5 squared units" nor "6 fifth graders".
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
    """A number as it was written.

    Attributes:
        value: without regard to the sign of percent.
        percent: whether it has one.
        unit: the parts of its unit that are known by name, with powers: km/h is km and hour, cm^2 is cm and ^2.
    """

    value: Fraction
    percent: bool = False
    unit: frozenset[str] = frozenset()


def same(gold: Number, answer: Number) -> bool:
    """Whether two numbers are the same.

    A percentage is its hundredth, and also, as the sign may be left out, the number itself: from 1 on, since 0.2 is
    rather 20% than 0.2%. A unit may be left out, or a part of it, but km are no cm; a rational angle without a unit is
    one of degrees.
    """
    if clash(gold.unit, answer.unit) or ("radian" in gold.unit) != ("radian" in answer.unit):
        return False
    if gold.percent == answer.percent:
        return gold.value == answer.value
    percent, plain = (gold, answer) if gold.percent else (answer, gold)
    return percent.value == 100 * plain.value or (percent.value == plain.value and abs(plain.value) >= 1)


def clash(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two units are different ones."""
    return not (one <= other or other <= one)


_DECIMAL = r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)"
_REPEATING = re.compile(r"(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{\s*(\d+)\s*\}|\((\d+)\))")
_WHOLE = re.compile(
    rf"({_DECIMAL})(?:[eE]([+-]?\d{{1,3}})(?!\d)|\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{{?([+-]?\d{{1,3}})\}}?)?"
)
_FRACTION = re.compile(
    rf"(\d+(?:\s+|(?=\\frac)))?(?:\\frac\{{\s*(-?{_DECIMAL})\s*\}}\{{\s*({_DECIMAL})\s*\}}|({_DECIMAL})\s*/\s*({_DECIMAL}))"
)
_PERCENT = re.compile(r"\s*(?:\\?%|per\s?cent\b)")
_SCALE = re.compile(rf"[\s-]*({'|'.join(_SCALES)})s?\b", re.IGNORECASE)
_CHINESE_SCALE = re.compile(rf"\s*([{''.join(_CHINESE_SCALES)}]+)")


@functools.lru_cache(maxsize=4096)
def number(text: str) -> Number | None:
    r"""The number that a text writes, exactly, `None` if it is no rational number.

    Read are `-1,234.5`, `\frac{3}{4}`, `3/4`, `1\frac{3}{4}`, `1 3/4`, `3 \times 10^{5}`, `3e5`, `0.1\overline{6}`,
    `twenty-one`, `5 million`, each with a percent sign, or words behind it, which are a unit, and arithmetic with
    numbers, such as `\frac{\frac{1}{2}}{3}` or `2^{10} - 1`.

    Args:
        text: of an `Answer`.
    """
    sign = re.match(r"\s*([+-]?)\s*", text)
    assert sign is not None
    body = text[sign.end() :]
    read = _read(body)
    if read is not None:
        value, rest = read
        percent = _PERCENT.match(rest)
        unit = unit_of(rest[percent.end() :] if percent else rest)
        if unit is not None:
            return Number(-value if sign[1] == "-" else value, percent is not None, unit)
    exact = arithmetic(text)
    return None if exact is None else Number(exact)


def _read(body: str) -> tuple[Fraction, str] | None:
    """The number at the start, and what stands behind it."""
    found: re.Match[str] | None
    if found := _REPEATING.match(body):
        whole, digits, repeated = found[1], found[2], found[3] or found[4]
        unit = Fraction(1, 10 ** len(digits))
        value = Fraction(int(whole or 0)) + int(digits or 0) * unit + int(repeated) * unit / (10 ** len(repeated) - 1)
    elif found := _FRACTION.match(body):
        parts = [part and part.replace(",", "").strip() for part in found.groups()]
        below = Fraction(parts[2] or parts[4] or 1)
        if below == 0:
            return None
        value = Fraction(parts[0] or 0) + Fraction(parts[1] or parts[3] or 0) / below
    elif found := _WHOLE.match(body):
        value = Fraction(found[1].replace(",", "")) * Fraction(10) ** int(found[2] or found[3] or 0)
    else:
        return _spelled(body)
    rest = body[found.end() :]
    while scale := _SCALE.match(rest):
        value, rest = value * _SCALES[scale[1].lower()], rest[scale.end() :]
    scale = _CHINESE_SCALE.match(rest)
    if scale and not _CHINESE.match(rest.strip()):
        for one in scale[1]:
            value *= _CHINESE_SCALES[one]
        rest = rest[scale.end() :]
    return value, rest


def _spelled(body: str) -> tuple[Fraction, str] | None:
    """The number in words at the start, such as "one hundred and five"."""
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
    """The known parts of the unit that a text behind a number names, none if it is empty, `None` if it is no unit."""
    if not text.strip():
        return frozenset()
    if re.fullmatch(r"\s*[\u3400-\u9fff]+", text):
        if re.search("[或到至和与加减乘除分点半的方]", _CHINESE.sub("", text)) or _CHINESE_SCALE.match(text):
            return None if not _CHINESE.match(text.strip()) else _known(text)
        return _known(text)
    if not re.fullmatch(r"\s*[A-Za-z][A-Za-z. /-]*(?:\^\s*\{?\d\}?)?\.?\s*", text):
        return None
    words = re.findall(r"[a-z]+", re.sub(r"\b([ap])\.\s?m\b", r"\1m", text.lower()))
    if _is_no_unit(words) or any(len(word) == 1 and word not in {*_UNIT, "a"} for word in words):
        return None
    if _singular(words[0]) in _UNIT:
        return _known(text)
    # Two letters, or letters right behind a digit, are a product of variables.
    is_word = text[:1].isspace() and len(words[0]) > 2 and re.search("[aeiou]", words[0])
    return _known(text) if is_word else None


def unit_in_group(words: str) -> frozenset[str] | None:
    r"""The same for words that `\text{...}` sets apart, which are words whatever their length."""
    if not re.fullmatch(r"[A-Za-z. /^{}\d\u3400-\u9fff-]*", words) or re.search(r"(?<!\^)(?<!\^\{)\d", words):
        return None
    found = re.findall(r"[a-z]+", words.lower())
    if not found:
        return unit_of(words)
    return None if _is_no_unit(found) else _known(words)


def _is_no_unit(words: list[str]) -> bool:
    """Whether words behind a number say that it is not the whole number, or make another one of it."""
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


_TOKEN = re.compile(rf"\s*({_DECIMAL}|\\(?:frac|times|cdot|div)(?![A-Za-z])|[-+*/^(){{}}])")
_RANK = {"+": 1, "-": 1, "*": 2, r"\times": 2, r"\cdot": 2, "/": 2, r"\div": 2, "^": 3}
_DEEPEST, _LARGEST_BITS = 40, 4096


def arithmetic(text: str) -> Fraction | None:
    r"""What a calculation with numbers comes to, `None` if the text is none, or one of large numbers.

    Read are +, -, *, \cdot, \times, /, \div, \frac, brackets and whole powers. Nothing may stand side by side, since
    2(3) is a product and 2 1/3 a sum; that is for the algebra.
    """
    tokens, place = [], 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            return None
        tokens.append(found[1])
        place = found.end()
    tokens.reverse()  # the next one is the last of the list
    try:
        value = _sum(tokens)
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    return None if tokens else value


def _sum(tokens: list[str], rank: int = 1, depth: int = 0) -> Fraction:
    """The value of what the next operators of at least this rank connect; only a sum may begin with a sign."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if rank == 1 and tokens[-1] in ("+", "-"):
        value = _sum(tokens, 2, depth) if tokens.pop() == "+" else -_sum(tokens, 2, depth)
    else:
        value = _atom(tokens, depth)
    while tokens and _RANK.get(tokens[-1], 0) >= rank:
        operator = tokens.pop()
        if operator == "^" and tokens[-1] != "{" and not re.fullmatch(r"\d", tokens[-1]):
            raise ValueError("x^12 is x^1 2")
        other = _sum(tokens, _RANK[operator] + 1, depth)
        value = _applied(operator, value, other)
        if operator == "^" and tokens[-1:] == ["^"]:
            raise ValueError("two powers")
    return value


def _atom(tokens: list[str], depth: int) -> Fraction:
    token = tokens.pop()
    if token in ("(", "{"):
        value = _sum(tokens, 1, depth + 1)
        if tokens.pop() != {"(": ")", "{": "}"}[token]:
            raise ValueError("brackets")
        return value
    if token == r"\frac":
        parts = []
        for _ in range(2):
            if tokens[-1] != "{":
                raise ValueError("brackets")
            parts.append(_atom(tokens, depth))
        return _applied("/", *parts)
    return Fraction(token.replace(",", ""))


def _applied(operator: str, one: Fraction, other: Fraction) -> Fraction:
    if operator in ("+", "-"):
        value = one + other if operator == "+" else one - other
    elif operator == "^":
        bits = max(one.numerator.bit_length(), one.denominator.bit_length())
        if other.denominator != 1 or abs(other) * bits > _LARGEST_BITS:
            raise ValueError("no whole or no small power")
        value = one ** int(other)
    else:
        value = one / other if operator in ("/", r"\div") else one * other
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 2 * _LARGEST_BITS:
        raise ValueError("large")
    return value
