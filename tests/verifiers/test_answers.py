from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.verifiers.answers import decide, flat, normal, without_names
from hf_credit.verifiers.numerals import Number, number


def decided(gold: str, answer: str) -> bool | None:
    return decide(normal(gold), normal(answer))


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac 59", r"\frac{5}{9}"),
        (r"\frac{270}7", r"\frac{270}{7}"),
        (r"\frac9{19}", r"\frac{9}{19}"),
        (r"11\sqrt2", r"11\sqrt{2}"),
        (r"90^\circ", "90"),
        (r"50^{\circ}", "50"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\mathbf{2340}", "2340"),
        (r"864 \mbox{ inches}^2", "864"),
        (r"5.4 \text{ cents}", "5.4"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"),
        (r"11,\! 111,\! 111,\! 100", "11,111,111,100"),
        (r"1{,}008{,}016", "1,008,016"),
        (r"\$32,\!348", "32,348"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"\left(3,4\right]", "(3,4]"),
        (r"x^{2}", "x^2"),
        (r"4343_{6}", "4343_6"),
        (r"-12 \text{ or } -30", "-12,-30"),
        (r"6, 8\text{, and }10", "6,8,10"),
        (r"4\!:\!51\!:\!06 \text{ p.m.}", "4:51:06p.m"),
        (r"\boxed{5}.", "5"),
        ("{{7}}", "7"),
        ("１２．５", "12.5"),
        ("x²−1", "x^2-1"),
        ("2½", "21/2"),
        (r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"1 & \phantom -1", "1&1"),
    ],
)
def test_layout_and_units_are_removed(answer: str, key: str) -> None:
    assert normal(answer).key == key


def test_an_answer_that_would_become_empty_stays_unchanged() -> None:
    assert normal(r"\phantom{09}").key == r"\phantom{09}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1,234.5", Fraction(-2469, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        ("3 / 4", Fraction(3, 4)),
        (r"1\frac{4}{5}", Fraction(9, 5)),
        (r"-137 \frac{1}{2}", Fraction(-275, 2)),
        ("2 1/2", Fraction(5, 2)),
        (".5", Fraction(1, 2)),
        (r"3 \times 10^{5}", Fraction(300_000)),
        (r"12 \cdot 10^{-2}", Fraction(12, 100)),
        ("four", Fraction(4)),
        ("18 dollars", Fraction(18)),
        ("18小包", Fraction(18)),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction) -> None:
    found = number(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    "text", ["", "x", "1/0", r"\frac{1}{0}", "2 x", r"2\pi", "1,-2", "12,34", "1:2", "2 sin", "5!", "1_8"]
)
def test_other_texts_are_not_numbers(text: str) -> None:
    assert number(text) is None


def test_a_percentage_is_the_number_and_its_hundredth() -> None:
    assert number(r"20\%") == Number(Fraction(20), percent=True)
    assert decided(r"20\%", "20") is True
    assert decided(r"20\%", "0.2") is True
    assert decided("20", "20%") is True
    assert decided(r"20\%", "2") is False


@given(st.fractions(), st.fractions())
def test_numbers_are_equal_as_they_are_as_fractions(one: Fraction, other: Fraction) -> None:
    written = rf"\frac{{{abs(other.numerator)}}}{{{other.denominator}}}"
    written = f"-{written}" if other < 0 else written
    assert decided(str(one), written) is (one == other)
    assert decided(str(one), str(one)) is True


@given(st.decimals(-(10**12), 10**12, places=3))
def test_a_decimal_is_its_fraction(number: object) -> None:
    assert decided(str(Fraction(str(number))), f"{number:,}") is True


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("1/3", "0.333", False),
        ("10,080", "10080", True),
        ("1,-2", "-2, 1", True),
        ("1, 1, -2", "1, -2, -2", False),
        ("(1,2)", "(2,1)", False),
        ("(1,2)", "1,2", True),
        ("3, 5, 7", "(7, 5, 3)", True),
        ("[1,2]", "(1,2)", False),
        ("(1,2]", "(1,2]", True),
        ("(1,2]", "[1,2]", False),
        ("(1,2)", r"\{1,2\}", False),
        (r"\{4,5,7\}", r"\{7,5,4\}", True),
        ("2516_8", "2516", False),
        ("2516_8", "1358", False),
        ("2516_8", "2516_{8}", True),
        ("3:1", "3", False),
        ("3:1", "3 : 1", True),
        (r"\text{(E)}", "E", True),
        (r"\text{(E)}", "(e)", True),
        (r"\text{(E)}", "(D)", False),
        (r"\text{Evelyn}", "evelyn", True),
        (r"\text{Evelyn}", "Briana", False),
        (r"\text{east}", "5", False),
        (r"\text{Softball, Kickball, Picnic}", "softball,kickball,picnic", True),
        ("3R^2", "3r^2", None),
        ("p - q", "-q + p", None),
        (r"\sqrt{3}", "1.7", None),
    ],
)
def test_answers_that_need_no_algebra_are_decided(gold: str, answer: str, same: bool | None) -> None:
    assert decided(gold, answer) is same


@pytest.mark.parametrize(
    ("gold", "answer", "rest"),
    [
        ("x=5", "5", ("5", "5")),
        ("5", "x = 5", ("5", "5")),
        ("5", "2 + 3 = 5", ("5", "5")),
        ("12", "a + b = 12", ("12", "12")),
        ("x = 5", "y = 5", ("x=5", "y=5")),
        ("x = 5", "x = 6", ("5", "6")),
        ("y = 2x + 3", "2x + 3", ("2x+3", "2x+3")),
        (r"x \in [-2,7]", "[-2,7]", ("[-2,7]", "[-2,7]")),
        ("x + y + z = 0", "0", ("x+y+z=0", "0")),
        ("0", "x + y + z = 0", ("0", "x+y+z=0")),
        ("25", "x^2 + y^2 = 25", ("25", "x^2+y^2=25")),
        ("AB=9, CD=4", "9", ("AB=9,CD=4", "9")),
    ],
)
def test_a_name_is_optional_and_an_equation_is_not_a_value(gold: str, answer: str, rest: tuple[str, str]) -> None:
    one, other = without_names(normal(gold), normal(answer))
    assert (one.key, other.key) == rest


@given(st.text(max_size=60))
def test_any_text_is_equal_to_itself_unless_nothing_is_left_of_it(text: str) -> None:
    assert normal(text).key == "" or decided(text, text) is True


ANSWERS = st.text(alphabet=r"\frac{}sqrtpm()[]12,.-+/:;%$^_ =xin0", max_size=30)


@given(ANSWERS, ANSWERS)
def test_no_answer_is_an_error(gold: str, answer: str) -> None:
    one, other = without_names(normal(gold), normal(answer))
    assert decide(one, other) in (True, False, None)


def test_invisible_characters_are_removed() -> None:
    assert flat("1\u200b2\ufeff３") == "123"


CHANGED = [
    ("2", "2 sevenths"), ("5", "5 halves"), ("5", "5 squared"), ("5", "5 negative"), ("4", "4 cubed"),
    ("6", "6 tenths"), ("10", "10 factorial"), ("45", "45 radians"), ("3", "3 hundredths"),
    ("7", "7 tripled"), ("0.3", "0.3 repeating"), ("5", "5 modulo 3"), ("2", "2 sevenths of a mile"),
    ("1", "one seventh"), ("5", "5的平方"), ("5", "5的一半"), ("5", "5 divided by 2"), ("5", "5 inverse"),
    ("2", "2 forty-fifths"), ("8", "8 sixteenths"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), CHANGED)
def test_a_word_that_changes_a_number_is_not_a_unit(gold: str, answer: str) -> None:
    number, _, words = answer.partition(" ")
    for written in (answer, rf"{number}\text{{ {words}}}") if words and number[0].isdigit() else (answer,):
        assert decide(normal(gold), normal(written)) is not True, written


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("6", "6 fifth graders"),
        ("5", "5 squared units"),
        ("5", "5 root beers"),
        ("500", "500 dollars raised"),
        ("5", "5 seconds"),
        ("4", "4 quarters"),
        ("12", "12 fish"),
        ("2 radians", "2 radians"),
        ("90", "90 degrees"),
        (r"\frac{\pi}{6}", r"\frac{\pi}{6}\text{ radians}"),
    ],
)
def test_a_unit_is_optional(gold: str, answer: str) -> None:
    for written in (answer, answer.replace(" ", r"\text{ ", 1) + "}" if answer[0].isdigit() else answer):
        assert decide(normal(gold), normal(written)) is True, written


@pytest.mark.parametrize("chain", ["5=6=5", "6=5", "5=6=5.0", r"\frac{1}{2} = 6 = 5"])
def test_a_chain_that_contradicts_itself_has_no_value(chain: str) -> None:
    assert without_names(normal("5"), normal(chain))[1].text == normal(chain).text


@pytest.mark.parametrize(
    ("chain", "last"),
    [("2 + 3 = 5", "5"), ("1/3 = 0.33", "0.33"), (r"1\text{ km} = 1000\text{ m}", "1000"), (r"20\% = 0.2", "0.2")],
)
def test_a_chain_that_agrees_up_to_rounding_and_units_has_its_last_member_s_value(chain: str, last: str) -> None:
    assert without_names(normal(last), normal(chain))[1].text == last
