r"""The notation that the algebra accepts: a short list, so that no text can become a program.

SymPy keeps text as the *name* of a symbol and, in some places (`Sum.evalf`, `nsolve`, roots of polynomials), compiles
a function whose source holds such names. So two lists guard it, one for the text and one for the tree parsed from it:
plain short names, and the commands and kinds of nodes that an answer needs. Sums, products, limits and texts within
formulas are not on them; integrals are, since they are computed by the rules of a school book. Other text equals the
same text only.
"""

from __future__ import annotations

import math
import re
from typing import Any

COMMANDS = frozenset({
    "frac", "sqrt", "pi", "infty", "cdot", "times", "div", "pm", "mp", "binom", "left", "right",
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "exp",
    "lfloor", "rfloor", "lceil", "rceil", "lvert", "rvert", "vert", "max", "min", "gcd", "lcm", "mod",
    "cup", "cap", "setminus", "emptyset", "varnothing", "in", "le", "ge", "leq", "geq", "lt", "gt", "ne", "neq",
    "approx",
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "kappa", "lambda",
    "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Xi", "Sigma", "Phi", "Psi", "Omega",
})  # fmt: skip
"""LaTeX commands, without the backslash."""

_TOKENS = re.compile(
    r"\\(?P<command>[A-Za-z]+)"
    r"|\\[{}|\\]"
    r"|_(?:[0-9A-Za-z]|\{[0-9A-Za-z]{1,3}\})"
    r"|[0-9A-Za-z+*/^=<>()\[\]{}|!,;.:& -]"
)
_LONGER = re.compile(
    r"\\int\s*_(?=[{0-9])|\\(?:begin|end)\{[pv]matrix\}|\\mathbb\s*\{[NZQRC]\}|\\(?:overline|bar|vec|hat)\s*\{[A-Za-z]{1,2}\}"
)
_GREEK = "|".join(sorted((name for name in COMMANDS if len(name) > 1), key=len, reverse=True))
NAME = re.compile(
    rf"(?:[A-Za-z]|d[A-Za-z]|{_GREEK}|(?:bar|vec|hat)\{{[A-Za-z]{{1,2}}\}})(?:_(?:[0-9A-Za-z]|\{{[0-9A-Za-z]{{2,3}}\}}))?"
)
"""The full name of a symbol."""

_NODES = frozenset({
    "Integer", "Rational", "Half", "One", "Zero", "NegativeOne", "Float", "Pi", "Exp1", "ImaginaryUnit", "EulerGamma",
    "Infinity", "NegativeInfinity", "ComplexInfinity", "NaN",
    "Symbol", "Add", "Mul", "Pow", "UnevaluatedExpr", "Abs", "floor", "ceiling",
    "factorial", "binomial", "Integral", "Mod", "Max", "Min", "exp", "log", "sin", "cos", "tan", "cot", "sec", "csc",
    "asin", "acos", "atan", "acot", "asec", "acsc", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "Tuple", "FiniteSet", "Interval", "Union", "Intersection", "Complement", "EmptySet", "Reals", "Naturals",
    "Integers", "Rationals", "Complexes", "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan",
    "GreaterThan", "And", "BooleanTrue", "BooleanFalse",
    "MutableDenseMatrix", "ImmutableDenseMatrix", "MatAdd", "MatMul", "MatPow",
})  # fmt: skip
_PACKAGES = ("sympy", "latex2sympy2_extended")
_FUNCTION = re.compile(r"[A-Za-z](?:_[0-9A-Za-z])?")

MOST_CHARACTERS = 5_000  # of which a question holds two texts, as JSON
MOST_NODES = 2_000
MOST_DIGITS = 20_000
"""The most digits of a number that an answer writes as a power or a factorial."""


class Refused(Exception):
    """The algebra must not compute with this tree."""


def refusal_of_text(text: str) -> str | None:
    """Returns why the algebra does not accept a text, `None` if it does.

    Args:
        text: an answer, as written or as math-verify rewrites it.
    """
    start = 0
    if len(text) > MOST_CHARACTERS:
        return f"the algebra does not read {len(text)} characters"
    while start < len(text):
        token = _LONGER.match(text, start) or _TOKENS.match(text, start)
        if token is None:
            return f"the algebra does not read {text[start : start + 12]!r}"
        command = token.groupdict().get("command")
        if command is not None and command not in COMMANDS:
            return f"the algebra does not read \\{command[:20]}"
        start = token.end()
    return None


def refusal_of_tree(tree: Any) -> str | None:
    """Returns why the algebra does not compute with a tree of SymPy, `None` if it does.

    Evaluates nothing but exponents that have small numbers and no names.
    """
    waiting, seen = [tree], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if seen > MOST_NODES:
            return f"it has more than {MOST_NODES:,} parts"
        kind = type(node)
        if _is_function(kind):
            if not _FUNCTION.fullmatch(kind.__name__):
                return "a function has a long name"
        elif kind.__name__ not in _NODES or kind.__module__.partition(".")[0] not in _PACKAGES:
            return f"it has a part of kind {kind.__name__[:40]}"
        if kind.__name__ == "Integral" and any(len(bounds) != 3 for bounds in node.limits):
            return "an integral has no bounds"
        if kind.__name__ == "Symbol" and not NAME.fullmatch(node.name):
            return "a symbol has a long name"
        waiting += node.flat() if kind.__name__.endswith("DenseMatrix") else node.args
    return None if _digits(tree) <= MOST_DIGITS else f"it has numbers of more than {MOST_DIGITS:,} digits"


def _is_function(kind: type) -> bool:
    """Returns whether a class stands for calls of a function that the text names."""
    return any(base.__name__ == "AppliedUndef" and base.__module__ == "sympy.core.function" for base in kind.__mro__)


def _digits(node: Any) -> float:
    """Returns a bound on the digits of all intermediate numbers of a tree's value, with one digit for each symbol.

    The exponent of a symbol counts too, since a power of a sum is multiplied out.
    """
    kind = type(node).__name__
    if kind in ("Integer", "Rational"):
        return float(max(abs(node.p).bit_length(), node.q.bit_length())) * 0.302 + 1
    parts = [_digits(part) for part in (node.flat() if kind.endswith("DenseMatrix") else node.args)]
    if not parts:
        return 1.0
    if kind == "Pow":
        return parts[0] * _at_most(node.args[1], parts[1])
    if kind in ("factorial", "binomial", "exp"):
        return 2 * parts[0] * _at_most(node.args[0], parts[0])
    if kind == "Integral":
        return math.prod(parts)  # a bound takes the place of the variable
    return max(parts) + len(parts) if kind != "Mul" else sum(parts)


def _at_most(node: Any, digits: float) -> float:
    """Returns a bound on a number with so many digits, infinite if beyond all limits."""
    if getattr(node, "is_Rational", False):
        return max(1.0, float(abs(node.p)) / float(node.q)) if digits < 300 else float("inf")
    if node.free_symbols or not node.args or digits >= 300:
        return 1.0 if digits < 6 else float("inf")
    value = abs(node.evalf(5))  # an exponent such as (5 + \sqrt{13})/6, whose numbers are small
    return max(1.0, float(value)) if value.is_Float or value.is_Rational else float("inf")
