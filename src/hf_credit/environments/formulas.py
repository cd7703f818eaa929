"""Boolean formulas over x0, x1, ... with `and`, `or`, `not` and brackets: sampled, and parsed without running code."""

from __future__ import annotations

import ast
import functools
import random
import re
from typing import Any

MAX_INPUTS, MAX_LENGTH = 4, 1000

_TOKENS = re.compile(r"(?:\s|\b(?:and|or|not|x[0-9])\b|[()])*")


def truth_table(formula: Any, inputs: int) -> int:
    """The outputs of a formula as 2^inputs bits, the first row's the highest. x0 is a row number's highest bit.

    `not` binds closer than `and`, and `and` closer than `or`, as in Python.

    Args:
        inputs: the number of variables, 1 to 4.

    Raises:
        ValueError: the text is not a formula.
    """
    rows = 1 << inputs
    all_ones = (1 << rows) - 1
    variables = {
        f"x{place}": sum((row >> inputs - 1 - place & 1) << rows - 1 - row for row in range(rows))
        for place in range(inputs)
    }

    def table(node: ast.expr) -> int:
        match node:
            case ast.Name(name) if name in variables:
                return variables[name]
            case ast.UnaryOp(ast.Not(), operand):
                return all_ones ^ table(operand)
            case ast.BoolOp(operator, operands):
                combine = int.__and__ if isinstance(operator, ast.And) else int.__or__
                return functools.reduce(combine, map(table, operands))
        raise ValueError

    try:
        if not isinstance(formula, str) or len(formula) > MAX_LENGTH or not _TOKENS.fullmatch(formula):
            raise ValueError
        return table(ast.parse(" ".join(formula.split()), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(
            "a formula must be of x0, x1, ... with and, or, not and brackets, in at most "
            f"{MAX_LENGTH} characters, got {repr(formula)[:100]}; correct it."
        ) from None


def draw_formulas(count: int, inputs: int, rng: random.Random) -> list[str]:
    """Samples formulas with different truth tables, none of them constant.

    Args:
        count: the number of formulas, at most 2^(2^inputs) - 2.
        inputs: the number of variables, 1 to 4.
    """
    drawn: dict[int, str] = {}
    while len(drawn) < count:
        formula = _drawn(inputs, rng.randint(1, 3) if inputs > 1 else 0, rng)
        drawn.setdefault(truth_table(formula, inputs), formula)
    return [formula[1:-1] if formula[0] == "(" else formula for formula in drawn.values()]


def _drawn(inputs: int, depth: int, rng: random.Random) -> str:
    """A formula that is not constant and has no redundant operand."""
    negated = "not " if rng.random() < 0.3 else ""
    if depth == 0 or rng.random() < 0.1:
        return f"{negated}x{rng.randrange(inputs)}"
    idle = {0, (1 << (1 << inputs)) - 1}
    while True:
        sides = [_drawn(inputs, depth - 1, rng) for _ in range(2)]
        inner = f"({sides[0]} {rng.choice(('and', 'or'))} {sides[1]})"
        if truth_table(inner, inputs) not in idle | {truth_table(side, inputs) for side in sides}:
            return f"{negated}{inner}"
