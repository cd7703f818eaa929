from __future__ import annotations

import pytest
import sympy
from sympy import E, Eq, I, Matrix, Rational, cos, pi, sin, sqrt

from code_sandbox.exactness import expressions_equal, numbers_equal, relations_equal

x, y = sympy.symbols("x y", real=True)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (sqrt(2) * sqrt(3), sqrt(6), True),
        (pi, Rational(3141592653589793, 10**15), False),
        (pi / 10**20, 2 * pi / 10**20, False),
        (E ** (pi * sqrt(163)), sympy.Integer(262537412640768744), False),
        (sympy.Mul(2 + I, 2 - I, evaluate=False), sympy.Integer(5), True),
        (Matrix([1, x]), Matrix([1, x]), True),
        (Matrix([1, x]), Matrix([x, 1]), False),
        (Matrix([1, x]), x, False),
    ],
)
def test_numbers_are_compared_exactly(one: object, other: object, equal: bool) -> None:
    assert (numbers_equal(one, other) or expressions_equal(one, other)) is equal


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (sin(x) ** 2 + cos(x) ** 2, sympy.Integer(1), True),
        ((x + 1) ** 2, x**2 + 2 * x + 1, True),
        (x, x + Rational(1, 10**30), False),
        (x / 10**20, 2 * x / 10**20, False),
        (sympy.oo, sympy.oo, False),  # what is the same tree is told before
        (sympy.zoo, x, False),
    ],
)
def test_expressions_are_compared_by_algebra(one: object, other: object, equal: bool) -> None:
    assert expressions_equal(one, other) is equal


@pytest.mark.parametrize(
    ("gold", "said", "equal"),
    [
        (Eq(2 * x, 10), Eq(x, 5), True),
        (Eq(x * y, 1), Eq(y, 1 / x), True),
        (Eq(x**2 + 1, 0, evaluate=False), Eq(x**2 + 2, 0, evaluate=False), False),
        (Eq(x, 5), Eq(y, 5), False),
        (x < 2, -2 * x > -4, True),
        (x < 2, x <= 2, False),
        (x < 2, x > 2, False),
        (Eq(x, 2), x < 2, False),
    ],
)
def test_relations_are_compared_by_their_solutions(gold: object, said: object, equal: bool) -> None:
    assert relations_equal(gold, said) is equal
