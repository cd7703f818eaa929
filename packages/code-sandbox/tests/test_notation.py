from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from code_sandbox.notation import NAME, refusal_of_text, refusal_of_tree

x = sympy.Symbol("x")


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{\sqrt{3}}{3} + x_{12}^2",
        r"\begin{pmatrix} 1 & 2 \\ 3 & x \end{pmatrix}",
        r"(-\infty, 2) \cup [3, \pi)",
        r"\overline{AB} + \mathbb{R}",
        r"5! \le |x|",
    ],
)
def test_the_notation_of_answers_is_read(text: str) -> None:
    assert refusal_of_text(text) is None


@pytest.mark.parametrize(
    "text",
    [
        r"\text{x}", r"\mathrm{x}", r"\operatorname{eval}(x)", r"\sum_{k=1}^3 k", r"\prod_1^2 x", r"\int x dx",
        r"\lim_{x \to 0} x", r"\displaystyle x", r"x_{exec}", r"\overline{exec}", r"\variable{x}", "x'", 'x"', "x@y",
        "x`y`", "$x$", "x\ny", "x#y", "答", "_x_", r"\\exec", r"\frac{x}{y} \det", r"20\%", "x?",
    ],
)  # fmt: skip
def test_other_notation_is_refused(text: str) -> None:
    if text in (r"\\exec", "_x_"):  # a new row, and letters
        text += "_"
    assert refusal_of_text(text) is not None


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz_.[](){}", min_size=4, max_size=20))
def test_a_symbol_cannot_have_the_name_of_a_program(name: str) -> None:
    greek = name.partition("_")[0] in {"alpha", "beta", "gamma", "delta", "zeta", "theta", "kappa", "lambda", "sigma"}
    assert greek or not NAME.fullmatch(name) or len(name) <= 7


@pytest.mark.parametrize(
    "name", ["exec", "eval", "open", "exit", "abs", "__import__", "x.y", "x[0]", "x(y)", "bar{exec}"]
)
def test_names_of_python_are_no_names(name: str) -> None:
    assert refusal_of_tree(sympy.Symbol(name)) == "a symbol has a long name"
    assert refusal_of_tree(x + 3 * sympy.sqrt(sympy.Symbol(name))) == "a symbol has a long name"


@pytest.mark.parametrize("name", ["x", "X", "x_1", "x_{12}", "theta", "phi_0", "bar{AB}", "dx"])
def test_short_plain_names_are_names(name: str) -> None:
    assert refusal_of_tree(sympy.Symbol(name)) is None


@pytest.mark.parametrize(
    "tree",
    [
        sympy.Sum(1 / x**2, (x, 1, sympy.oo)),
        sympy.Product(x, (x, 1, 3)),
        sympy.Integral(x, x),
        sympy.Limit(x, x, 0),
        sympy.Derivative(x**2, x),
        sympy.rootof(x**5 - x + 1, 0),
        sympy.Lambda(x, x),
        sympy.Function("exec")(x),
        1 + sympy.Sum(x, (x, 1, 3)) / 2,
        sympy.Matrix([[sympy.Sum(x, (x, 1, 3))]]),
        [sympy.Integer(1)],
        "text",
    ],
)
def test_what_leads_to_a_compiler_is_refused(tree: object) -> None:
    assert refusal_of_tree(tree) is not None


def power(base: object, exponent: object) -> sympy.Expr:
    return sympy.Pow(base, exponent, evaluate=False)


@pytest.mark.parametrize(
    "tree",
    [
        power(9, power(9, power(9, 9))),
        power(2, 6_000_000_000),
        power(power(10, 9), power(10, 9)),
        power(sympy.Rational(1, 3), 10**6),
        sympy.factorial(10**7, evaluate=False),
        sympy.factorial(sympy.factorial(10**9, evaluate=False), evaluate=False),
        sympy.exp(power(10, 10), evaluate=False),
        sympy.sqrt(x) + power(9, power(9, 9)),
    ],
)
def test_numbers_without_end_are_refused(tree: sympy.Expr) -> None:
    assert "digits" in (refusal_of_tree(tree) or "")


@pytest.mark.parametrize(
    "tree",
    [power(2, 4950), sympy.factorial(20, evaluate=False), x**2005, power(x + 1, 200), power(2, x), sympy.exp(x)],
)
def test_numbers_of_answers_are_not(tree: sympy.Expr) -> None:
    assert refusal_of_tree(tree) is None
