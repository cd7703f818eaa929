"""Boolean formulas over x0, x1, ... with `and`, `or`, `not` and brackets: sampled, and parsed without running code."""

from __future__ import annotations

import random
import re
from typing import Any

MAX_INPUTS, MAX_LENGTH = 4, 1000

_TOKEN = re.compile(r"\s*(?:(and|or|not)\b|x([0-9])(?![0-9])|([()]))")
_BINDS = {"or": 1, "and": 2, "not": 3}


def truth_table(formula: Any, inputs: int) -> int:
    """The outputs of a formula as 2^inputs bits, the first row's the highest. x0 is a row number's highest bit.

    `not` binds closer than `and`, and `and` closer than `or`, as in Python.

    Args:
        formula: the formula as text.
        inputs: the number of variables, 1 to 4.

    Raises:
        ValueError: the text is not a formula.
    """
    rows = 1 << inputs
    every = (1 << rows) - 1
    variables = [
        sum((row >> inputs - 1 - variable & 1) << rows - 1 - row for row in range(rows)) for variable in range(inputs)
    ]
    values: list[int] = []
    waiting: list[str] = []

    def apply(operator: str) -> None:
        last = values.pop()
        match operator:
            case "not":
                values.append(every ^ last)
            case "and":
                values.append(values.pop() & last)
            case _:
                values.append(values.pop() | last)

    operand = True  # whether an operand is expected, not an operator
    for word, variable, bracket in _tokens(formula):
        if operand != bool(variable or word == "not" or bracket == "("):
            raise _unreadable(formula)
        if variable:
            if int(variable) >= inputs:
                raise _unreadable(formula)
            values.append(variables[int(variable)])
            operand = False
        elif bracket == "(" or word == "not":
            waiting.append(word or bracket)
        elif word:
            while waiting and waiting[-1] != "(" and _BINDS[waiting[-1]] >= _BINDS[word]:
                apply(waiting.pop())
            waiting.append(word)
            operand = True
        else:
            while waiting and waiting[-1] != "(":
                apply(waiting.pop())
            if not waiting:
                raise _unreadable(formula)
            waiting.pop()
    if operand or "(" in waiting:
        raise _unreadable(formula)
    while waiting:
        apply(waiting.pop())
    return values[0]


def draw_formulas(count: int, inputs: int, rng: random.Random) -> list[str]:
    """Samples formulas with different truth tables, none of them constant.

    Args:
        count: the number of formulas, at most 2^(2^inputs) - 2.
        inputs: the number of variables, 1 to 4.
        rng: the random generator.
    """
    found: dict[int, str] = {}
    while len(found) < count:
        formula = _drawn(inputs, rng.randint(1, 3) if inputs > 1 else 0, rng)
        found.setdefault(truth_table(formula, inputs), formula)
    return [formula[1:-1] if formula[0] == "(" else formula for formula in found.values()]


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


def _tokens(formula: Any) -> list[tuple[str, str, str]]:
    if not isinstance(formula, str) or len(formula) > MAX_LENGTH:
        raise _unreadable(formula)
    text = formula.strip()
    tokens, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _unreadable(formula)
        tokens.append((found[1] or "", found[2] or "", found[3] or ""))
        place = found.end()
    return tokens


def _unreadable(formula: Any) -> ValueError:
    return ValueError(
        "a formula must be of x0, x1, ... with and, or, not and brackets, in at most "
        f"{MAX_LENGTH} characters, got {repr(formula)[:100]}; correct it."
    )
