from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.verifiers.numerals import number, unit_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", Fraction(1000)),
        ("2.5E-3", Fraction(1, 400)),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"-1.\overline{27}", Fraction(-14, 11)),
        ("0.(142857)", Fraction(1, 7)),
        ("twenty", Fraction(20)),
        ("twenty-one", Fraction(21)),
        ("one hundred and five", Fraction(105)),
        ("three thousand five hundred", Fraction(3500)),
        ("two million dollars", Fraction(2_000_000)),
        ("5 million", Fraction(5_000_000)),
        ("3 dozen", Fraction(36)),
        ("5万", Fraction(50_000)),
        ("5千克", Fraction(5)),
        ("5 per cent", Fraction(5)),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction) -> None:
    found = number(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    "text",
    [
        "5 or six",
        "five six",
        "5ab",
        "5xy",
        "5 ab",
        "5 x",
        "5 plus 3",
        "5或6",
        "2^12",
        "2^{99999}",
        "2(3)",
        "1/0",
        "2+2",
    ],
)
def test_other_texts_are_not_numbers(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", set()),
        (" km", {"km"}),
        ("km", {"km"}),
        (" kilometers per hour", {"km", "hour"}),
        (" mph", {"mile", "hour"}),
        (" cm^2", {"cm", "^2"}),
        (" square feet", {"foot", "^2"}),
        (" p.m.", {"pm"}),
        (" dollars a day", {"dollar", "day"}),
        (" apples", set()),
        ("平方米", {"m", "^2"}),
        ("小包", set()),
        (" pi", None),
        (" apples or pears", None),
        ("ab", None),
    ],
)
def test_a_unit_is_known_by_its_parts(text: str, unit: set[str] | None) -> None:
    assert unit_of(text) == unit


@given(st.text(alphabet=r"\frac{}overline0123456789.,+-*/^()eE %milontwey", max_size=40))
def test_no_text_is_an_error(text: str) -> None:
    assert number(text) is None or isinstance(number(text), tuple)
