"""Exact comparisons of SymPy expressions, in place of those of math-verify, which compares six decimals.

`math_verify.grader` takes a tree apart (sets, intervals, tuples, relations) and calls these for the leaves.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from code_sandbox.notation import Refused, refusal_of_tree

_DIGITS = 60
"""Two constants that agree in this many digits count as equal: no known coincidence gets half as far."""
_REVERSED = {
    sympy.StrictLessThan: sympy.StrictGreaterThan,
    sympy.StrictGreaterThan: sympy.StrictLessThan,
    sympy.LessThan: sympy.GreaterThan,
    sympy.GreaterThan: sympy.LessThan,
}
_TRIES = (sympy.Rational(7, 5), sympy.Rational(13, 7))


def divisors(name: str, values: Any) -> Any:
    """Returns the `gcd` or `lcm` of values, in whole numbers: the library takes the values of sums to 15 digits."""
    if reason := next(filter(None, map(refusal_of_tree, values)), None):
        raise Refused(reason)
    return sympy.UnevaluatedExpr(getattr(sympy, name)([value.doit() for value in values]))


def numbers_equal(one: Any, other: Any, *_: Any) -> bool:
    """Returns whether two constants are equal, or two matrices entry by entry."""
    if _is_matrix(one) and _is_matrix(other):
        one, other = one.doit(), other.doit()
        if not isinstance(one, sympy.MatrixBase) or not isinstance(other, sympy.MatrixBase):
            return False
        if one.shape != other.shape:
            return False
        pairs = zip(one.flat(), other.flat(), strict=True)
        return all(numbers_equal(*pair) or expressions_equal(*pair) for pair in pairs)
    return _close(one, other) is True


def expressions_equal(one: Any, other: Any) -> bool:
    """Returns whether the difference of two expressions is 0, by algebra."""
    if not _is_scalar(one) or not _is_scalar(other) or _close(one, other) is False:
        return False
    difference = sympy.expand((one - other).doit())
    return bool(difference == 0 or sympy.simplify(difference) == 0)


def _is_matrix(value: Any) -> bool:
    return isinstance(value, sympy.MatrixBase | sympy.MatrixExpr)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not _is_matrix(value)


def relations_equal(gold: Any, answer: Any, *_: Any) -> bool:
    """Returns whether two equations or inequalities have the same solutions, at least one."""
    ratio = sympy.simplify((gold.lhs - gold.rhs) / (answer.lhs - answer.rhs))
    if type(gold) in _REVERSED:
        if not ratio.is_number or type(answer) not in (type(gold), _REVERSED[type(gold)]):
            return False
        return bool(ratio.is_positive if type(answer) is type(gold) else ratio.is_negative)
    if isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq):
        if ratio.is_number:
            return bool(ratio.is_finite and ratio.is_nonzero)
        if gold.free_symbols != answer.free_symbols:
            return False
        solutions = [sympy.solve(one, sorted(one.free_symbols, key=str), dict=True) for one in (gold, answer)]
        return bool(solutions[0]) and _same_solutions(*solutions)
    return False


def _same_solutions(golds: list[Any], answers: list[Any]) -> bool:
    if len(golds) != len(answers):
        return False
    for gold in golds:
        for index, answer in enumerate(answers):
            if gold.keys() == answer.keys() and all(expressions_equal(gold[name], answer[name]) for name in gold):
                del answers[index]
                break
        else:
            return False
    return True


def _close(one: Any, other: Any) -> bool | None:
    """Returns whether two expressions agree to many digits: exact for constants, `None` if only algebra can decide."""
    if not _is_scalar(one) or not _is_scalar(other):
        return None
    names = sorted(one.free_symbols | other.free_symbols, key=str)
    if not names:
        one, other = one.doit(), other.doit()
        if one.is_Rational and other.is_Rational:
            return bool(one == other)
        return _agree(one, other)
    for first in _TRIES:
        values = {name: first + sympy.Rational(3 * index, 11) for index, name in enumerate(names)}
        if _agree(one.subs(values).doit(), other.subs(values).doit()) is False:
            return False
    return None


def _agree(one: Any, other: Any) -> bool | None:
    if any(value.has(sympy.nan, sympy.zoo, sympy.oo, AppliedUndef) for value in (one, other)):
        return None
    values = [value.evalf(_DIGITS) for value in (one, other)]
    if not all(value.is_number and value.is_comparable is not None for value in values):
        return None
    size = max(abs(value) for value in values)
    apart = abs(values[0] - values[1])
    if not (size.is_Float or size.is_Rational) or not (apart.is_Float or apart.is_Rational):
        return None
    if apart <= size * sympy.Float(10) ** -(_DIGITS - 15):
        return True
    # Next to an exact zero no digits agree, as in sqrt(2)*sqrt(3) - sqrt(6): only algebra can decide.
    return None if min(abs(value) for value in values) < size * sympy.Float(10) ** -(_DIGITS - 15) else False
